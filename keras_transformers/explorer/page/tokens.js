// How a text becomes tokens, step by step.

import * as api from "./api.js";
import { h, visible } from "./dom.js";
import { word } from "./words.js";

export async function showTokens(model, given) {
  const [text] = Object.values(given);
  const { kind, tokens, ids, words } = await api.view(model, "tokens", { text });
  return [
    h("div", { class: "tokens" }, tokens.map((token, i) =>
      h("span", { class: "token", title: `id ${ids[i]}` }, visible(token), h("sub", { class: "soft" }, ` ${ids[i]}`)))),
    h("p", { class: "soft" }, word(kind === "tokens" ? "plain" : kind)),
    h("ol", {}, words.map((each) => h("li", {}, each.found ? matches(each.found) : merges(each)))),
  ];
}

function matches(found) {
  return found.map(({ piece, tried }) => h("div", { class: "tokens" },
    h("span", { class: "token" }, piece),
    tried.length ? h("span", { class: "soft" }, `${word("tried")}: ${tried.slice(0, 12).join(", ")}${tried.length > 12 ? " …" : ""}`) : null));
}

function merges({ steps, tokens }) {
  return (steps ?? [tokens]).map((symbols) => h("div", { class: "tokens" },
    symbols.map((symbol) => h("span", { class: "token" }, visible(symbol)))));
}
