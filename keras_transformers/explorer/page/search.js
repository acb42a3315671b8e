// The lines nearest to a question, and what each of their tokens adds to that.

import * as api from "./api.js";
import { h, shaded } from "./dom.js";
import { word } from "./words.js";

const MOST_RESULTS = 10;
export const EXAMPLE = {
  question: "How do I get my money back?",
  lines: [
    "We refund an order within fourteen days.",
    "Parcels arrive two days after they are sent.",
    "The shop is open from nine to six.",
    "You can pay by card or by bank transfer.",
    "Send the shoes back if they do not fit.",
    "A new password comes by e-mail.",
  ].join("\n"),
};

export async function showSearch(model, { question, lines }) {
  const found = await search(model, question, lines.split("\n").filter((line) => line.trim()));
  const rows = found.map(({ line, score, tokens, shares }) => {
    const bar = h("div", { class: "bar" });
    bar.style.width = `${100 * Math.max(0, score)}%`;
    const most = Math.max(...(shares ?? []).map(Math.abs), 1e-9);
    return h("li", {},
      h("div", { class: "found" }, h("span", {}, score.toFixed(3)), h("div", { class: "bar-box" }, bar)),
      tokens
        ? h("div", { class: "tokens" }, tokens.map((token, i) => shaded(token, shares[i] / most, shares[i].toFixed(4))))
        : h("p", {}, line));
  });
  return [
    h("h2", {}, word("nearest")),
    h("ol", { id: "nearest" }, rows),
    h("p", { class: "soft" }, word(found[0]?.tokens ? "cosine" : "cosineAlone")),
  ];
}

/** Returns the best lines; of an export from its vectors, without tokens. */
async function search(model, question, lines) {
  if (model.kind === "weights") return api.view(model, "search", { question, lines });
  if (!lines.length) throw new Error(word("noLines"));
  const prompt = (...names) => names.find((name) => model.signatures.includes(name));
  const [asked] = await api.embed(model, [question], prompt("query"));
  const vectors = await api.embed(model, lines, prompt("document", "passage", "corpus"));
  const found = lines.map((line, place) => ({ line, place, score: cosine(vectors[place], asked) }));
  return found.sort((a, b) => b.score - a.score).slice(0, MOST_RESULTS);
}

function cosine(a, b) {
  const dot = (x, y) => x.reduce((sum, value, i) => sum + value * y[i], 0);
  return dot(a, b) / Math.max(Math.sqrt(dot(a, a) * dot(b, b)), 1e-12);
}
