// How a decoder writes a text: what it reads, what that attends to, and what it adds, step by step.

import * as api from "./api.js";
import { bars, floats, h, menu, percent, range, shaded, visible } from "./dom.js";
import { stepper } from "./steps.js";
import { word } from "./words.js";

export async function showDecoding(model, given) {
  const [text] = Object.values(given);
  const { source, target, predicted, steps } = await api.view(model, "decoding", { ...given, text });
  if (!steps.length) return [h("p", { class: "soft" }, word("noSteps"))];
  const read = target.length - predicted.length + 1; // in the first step
  const maps = steps.map(({ attention }, step) => Object.fromEntries(Object.entries(attention).map(([kind, packed]) => {
    const values = floats(packed);
    const keys = kind === "cross" ? source.length : read + step;
    return [kind, { layers: values.length / keys, at: (layer, key) => values[layer * keys + key] }];
  })));
  const layers = Math.max(0, ...Object.values(maps[0]).map((map) => map.layers));
  const state = { layer: layers - 1, step: 0 };
  const body = h("div", { id: "decoding" });
  const draw = () => body.replaceChildren(...drawn(state));

  function tokens(kind, names, last) {
    const map = maps[state.step][kind];
    return h("div", { class: "tokens", id: kind }, names.map((token, key) => {
      const share = map ? map.at(state.layer, key) : 0;
      const element = shaded(token, share, map ? percent(share) : token);
      if (key === last) element.classList.add("new");
      return element;
    }));
  }

  function drawn({ step }) {
    const chosen = predicted[step];
    const { alternatives } = steps[step];
    const inputs = target.slice(0, read + step);
    const list = bars(alternatives.map(({ token, probability }) => [visible(token), probability]));
    list.children[3 * alternatives.findIndex(({ token }) => token === chosen)]?.classList.add("picked");
    return [
      source ? h("h2", {}, word("sourceOnce")) : null,
      source ? tokens("cross", source, -1) : null,
      h("h2", {}, word("reads")), tokens("decoder", inputs, inputs.length - 1),
      h("h2", {}, word("predicts")), list,
      h("h2", {}, word("written")),
      h("div", { class: "tokens", id: "written" }, predicted.slice(0, step + 1).map((token, i) =>
        h("span", { class: i === step ? "token picked new" : "token" }, visible(token)))),
    ].filter(Boolean);
  }

  return [
    h("p", { class: "soft" }, word("decodingIntro")),
    layers > 1 ? h("div", { class: "row" }, menu(word("layer"), range(layers).map((i) => [i, i + 1]), state.layer, (layer) => {
      state.layer = layer;
      draw();
    })) : null,
    stepper(steps.length, (step) => {
      state.step = step;
      draw();
    }),
    body,
  ].filter(Boolean);
}
