// The layout, away from the thread that draws.

import { layOutGraph, type LayoutInput } from "../../model/layout";

addEventListener("message", (message: MessageEvent<LayoutInput>) => {
  postMessage(layOutGraph(message.data));
});
