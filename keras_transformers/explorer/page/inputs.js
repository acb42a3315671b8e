// What the model reads at each position: token, segment and position, and the sum of their vectors.

import * as api from "./api.js";
import { floats, h, range, strips, visible } from "./dom.js";
import { word } from "./words.js";

export async function showInputs(model, given) {
  const { tokens, ids, segments, width, shown, vectors } = await api.view(model, "inputs", given);
  const parts = Object.fromEntries(Object.entries(vectors).map(([name, packed]) => [name, floats(packed)]));
  // One scale for all: the sum is drawn as it is added.
  const draw = strips(Object.values(parts).flatMap((values) => [...values]));
  const strip = (name, i, label) => draw(parts[name].subarray(i * shown, (i + 1) * shown), label);
  const names = ["token", "segment", "position"].filter((name) => parts[name]);
  const value = (name, i) => ({
    token: visible(tokens[i]), segment: segments && "ABCDEFGH"[segments[i]], position: `${i}`,
  })[name];
  const line = (sign, name, i) => h("div", { class: "part" }, h("span", { class: "soft" }, sign),
    h("span", {}, name === "sum" ? "" : `${word(name)} ${name === "token" ? ids[i] : value(name, i)}`),
    strip(name, i, `${word(name)} ${value(name, i) ?? ""}`));
  const pairs = segments && new Set(segments).size > 1;
  return [
    h("p", { class: "soft" }, `${word(pairs ? "pairIntro" : "inputIntro")} ${word("values")}: ${shown} / ${width}.`),
    h("ol", { class: "inputs", start: 0 }, range(tokens.length).map((i) => h("li", { class: segments?.[i] % 2 ? "second" : "first" },
      h("strong", {}, visible(tokens[i])),
      names.map((name, place) => line(place ? "+" : "", name, i)),
      parts.sum ? line("=", "sum", i) : null))),
  ];
}
