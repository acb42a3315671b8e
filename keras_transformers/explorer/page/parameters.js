// The account of parameters as a tree that opens down to each matrix.

import * as api from "./api.js";
import { h } from "./dom.js";

export async function showParameters(model) {
  const tree = await api.view(model, "parameters", {});
  const root = branch(tree, tree.parameters);
  root.open = true;
  return [root];
}

function branch(node, total) {
  const share = total ? ` · ${((100 * node.parameters) / total).toFixed(1)} %` : "";
  const text = `${node.name}: ${node.parameters.toLocaleString("en")}`;
  if (!node.parts.length) {
    return h("div", { class: "leaf" }, text, h("span", { class: "soft" }, ` (${node.shape.join(" × ") || "1"})${share}`));
  }
  const details = h("details", {}, h("summary", {}, text, h("span", { class: "soft" }, share)));
  // Drawn when it is opened: a large model has thousands of matrices.
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(...node.parts.map((part) => branch(part, total)));
  });
  return details;
}
