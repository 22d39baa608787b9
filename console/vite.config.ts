import preact from "@preact/preset-vite";
import { defineConfig } from "vite";

// Relative addresses: the server may be mounted below a path, and tells the page where by <base>.
export default defineConfig({
  base: "./",
  plugins: [preact()],
  build: {
    outDir: "../cmbs/console/static",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: "es2022",
  },
  worker: { format: "es" },
  server: { proxy: { "/v1": "http://127.0.0.1:8080" } },
});
