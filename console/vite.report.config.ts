import { createHash } from "node:crypto";
import preact from "@preact/preset-vite";
import { type Plugin, defineConfig } from "vite";

function hash(text: string): string {
  return `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
}

/** Puts script and style into the page, with a policy that allows these two and nothing else. */
function inlineAll(): Plugin {
  return {
    name: "inline-all",
    enforce: "post",
    generateBundle(_, bundle) {
      const files = Object.values(bundle);
      const page = files.find((file) => file.fileName === "report.html");
      const scripts = files.filter((file) => file.type === "chunk");
      const [script] = scripts;
      if (page?.type !== "asset" || !script || scripts.length !== 1) this.error("the report is one page and one script");
      // A script ends at its first closing tag, wherever that stands.
      const code = script.code.replaceAll("</script", "<\\/script").replace(/^\/\/# sourceMappingURL.*$/m, "");
      const style = files.filter((file) => file.type === "asset" && file.fileName.endsWith(".css")).map((file) => (file.type === "asset" ? String(file.source) : "")).join("\n");
      const policy = `default-src 'none'; script-src ${hash(code)}; style-src ${hash(style)}; img-src data:; base-uri 'none'; form-action 'none'`;
      const bare = String(page.source).replaceAll(/\s*<(?:script type="module"[^>]*><\/script>|link rel="(?:stylesheet|modulepreload)"[^>]*>)/g, "");
      const meta = `<meta http-equiv="Content-Security-Policy" content="${policy}" />`;
      page.source = bare.replace("<title>", () => `${meta}\n    <title>`).replace("</head>", () => `<style>${style}</style>\n  </head>`).replace("</body>", () => `<script type="module">${code}</script>\n  </body>`);
      for (const file of files) if (file !== page) delete bundle[file.fileName];
    },
  };
}

// The report of `cmbs analyse --html`: one file, opened from a disk.
export default defineConfig({
  base: "./",
  plugins: [preact(), inlineAll()],
  build: {
    outDir: "../cmbs/console/static",
    emptyOutDir: false,
    modulePreload: false,
    cssCodeSplit: false,
    target: "es2022",
    rollupOptions: { input: "report.html" },
  },
});
