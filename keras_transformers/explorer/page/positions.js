// The encoding of positions as a picture.

import * as api from "./api.js";
import { bytes, h } from "./dom.js";
import { word } from "./words.js";

export async function showPositions(model) {
  const { kind, rows, columns, largest, values } = await api.view(model, "positions", {});
  const levels = bytes(values);
  const canvas = h("canvas", { role: "img", "aria-label": word(kind) });
  canvas.width = columns;
  canvas.height = rows;
  const size = kind === "relative" ? 12 : 6;
  canvas.style.width = `${Math.min(900, columns * size)}px`;
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  // Blue above 0, red below.
  levels.forEach((level, i) => {
    const value = (level - 127.5) / 127.5;
    image.data.set([value < 0 ? 200 : 40, 90, value < 0 ? 60 : 200, Math.round(255 * Math.abs(value))], 4 * i);
  });
  context.putImageData(image, 0, 0);
  return [h("p", { class: "soft" }, `${word(kind)} ±${largest.toPrecision(3)}`), h("div", { class: "scroll" }, canvas)];
}
