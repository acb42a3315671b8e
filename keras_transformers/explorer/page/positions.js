// The encoding of positions as a picture.

import * as api from "./api.js";
import { bytes, h, signed } from "./dom.js";
import { word } from "./words.js";

export async function showPositions(model) {
  const { kind, rows, columns, largest, values } = await api.view(model, "positions", {});
  const levels = bytes(values);
  const canvas = signed((i) => (levels[i] - 127.5) / 127.5, rows, columns, word(kind));
  const size = kind === "relative" ? 12 : 6;
  canvas.style.width = `${Math.min(900, columns * size)}px`;
  return [h("p", { class: "soft" }, `${word(kind)} ±${largest.toPrecision(3)}`), h("div", { class: "scroll" }, canvas)];
}
