// What each token attends to: any head, by hover or by Tab.

import * as api from "./api.js";
import { bytes, h, heatmap, menu, percent, range, shaded, visible } from "./dom.js";
import { picture } from "./answer.js";
import { word } from "./words.js";

export async function showAttention(model, given, { image }) {
  const found = await api.view(model, "attention", given);
  const maps = Object.fromEntries(Object.entries(found).map(([kind, each]) => [kind, read(each)]));
  const root = h("div", {});
  const state = { kind: Object.keys(maps).at(-1), layer: Infinity, head: -1, query: 0 };
  draw(root, maps, state, image);
  return [root];
}

/** Returns a map with `at(layer, head, query, key)`; head -1 is the mean. */
function read({ queries, keys, shape, probabilities }) {
  const packed = bytes(probabilities);
  const values = new Uint16Array(packed.buffer);
  const [, heads, rows, columns] = shape;
  const one = (layer, head, query, key) =>
    values[((layer * heads + head) * rows + query) * columns + key] / 65535;
  const at = (layer, head, query, key) => {
    if (head >= 0) return one(layer, head, query, key);
    let sum = 0;
    for (let each = 0; each < heads; each += 1) sum += one(layer, each, query, key);
    return sum / heads;
  };
  return { queries, keys, shape, at };
}

function draw(root, maps, state, image) {
  const map = maps[state.kind];
  const [layers, heads, rows, columns] = map.shape;
  state.layer = Math.min(state.layer, layers - 1);
  state.query = Math.min(state.query, rows - 1);
  const redraw = (changes) => draw(root, maps, Object.assign(state, changes), image);
  const select = (name, options) => menu(word(name), options, state[name], (value) => redraw({ [name]: value }));
  const controls = h("div", { class: "row" },
    select("kind", Object.keys(maps).map((kind) => [kind, word(kind)])),
    select("layer", range(layers).map((i) => [i, i + 1])),
    select("head", [[-1, word("mean")], ...range(heads).map((i) => [i, i + 1])]));

  const keys = h("div", { class: "tokens", id: "keys" });
  const shown = h("div", {});
  const choose = (query) => {
    state.query = query;
    const share = (key) => map.at(state.layer, state.head, query, key);
    if (image) shown.replaceChildren(...onImage(image, map, share));
    else {
      keys.replaceChildren(...map.keys.map((token, key) => shaded(token, share(key), percent(share(key)))));
    }
    for (const [i, button] of [...queries.children].entries()) {
      button.setAttribute("aria-pressed", String(i === query));
      button.classList.toggle("chosen", i === query);
    }
  };
  const queries = h("div", { class: "tokens", id: "queries" }, map.queries.map((token, i) => h("button", {
    type: "button", class: "token", "aria-pressed": "false",
    click: () => choose(i), focus: () => choose(i), mouseenter: () => choose(i),
  }, visible(token))));

  const grid = h("div", {}, range(layers).map((layer) => h("div", { class: "heads" }, range(heads).map((head) => {
    const label = `${word("layer")} ${layer + 1}, ${word("head")} ${head + 1}`;
    const small = heatmap((i) => map.at(layer, head, Math.floor(i / columns), i % columns), rows, columns,
      { scale: Math.max(1, Math.floor(48 / Math.max(rows, columns))), label });
    const chosen = layer === state.layer && head === state.head;
    return h("button", { type: "button", class: chosen ? "chosen" : "", title: label, "aria-label": label, click: () => redraw({ layer, head }) }, small);
  }))));

  root.replaceChildren(controls, h("p", { class: "soft" }, word("hover")),
    h("h2", {}, word("queries")), queries, h("h2", {}, word("keys")), image ? shown : keys,
    h("h2", {}, word("allHeads")), h("div", { class: "scroll" }, grid));
  choose(state.query);
}

/** Returns the image under a grid as dark as the patches are attended to. */
function onImage(image, map, share) {
  const places = map.keys.map((key) => key.split(",").map(Number));
  const [rows, columns] = [0, 1].map((axis) => 1 + Math.max(...places.slice(1).map((place) => place[axis])));
  const most = Math.max(...map.keys.slice(1).map((_, i) => share(i + 1)), 1e-9);
  const grid = heatmap((i) => share(i + 1) / most, rows, columns, { label: word("keys") });
  const box = picture(image);
  grid.style.width = "";
  box.append(grid);
  return [box, h("p", { class: "soft" }, `[CLS] ${percent(share(0))}`)];
}
