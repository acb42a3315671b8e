// A beam search as a tree: each column is a step.

import * as api from "./api.js";
import { h, s, visible } from "./dom.js";
import { word } from "./words.js";

const [WIDTH, HEIGHT, GAP] = [104, 26, 30];

export async function showBeams(model, given) {
  const { steps, results } = await api.view(model, "beams", given);
  return [
    h("p", { class: "big" }, results[0]?.text ?? ""),
    h("ol", {}, results.map(({ text, score }) =>
      h("li", {}, `${text} `, h("span", { class: "soft" }, score.toFixed(3))))),
    h("p", { class: "soft" }, word("alive")),
    h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": word("beams") }, tree(steps)),
  ];
}

/** Marks which hypotheses lead to the best translation, and which to any that ended. */
function fates(steps) {
  const lives = steps.map(({ alive }) => alive.map(() => "dead"));
  const trace = (step, place, fate) => {
    for (let i = step, at = place; i >= 0; i -= 1) {
      if (lives[i][at] === "won") return;
      lives[i][at] = fate;
      at = steps[i].alive[at].parent;
    }
  };
  const all = steps.flatMap(({ ended }, step) => ended.map((each) => ({ ...each, step })));
  all.sort((a, b) => a.score - b.score);
  for (const { step, parent } of all) if (step > 0) trace(step - 1, parent, "live");
  const best = all.at(-1);
  if (best?.step > 0) trace(best.step - 1, best.parent, "won");
  return { lives, best };
}

function tree(steps) {
  const { lives, best } = fates(steps);
  const rows = Math.max(...steps.map(({ alive, ended }) => alive.length + ended.length), 1);
  const x = (step) => step * (WIDTH + GAP);
  const y = (place) => place * (HEIGHT + 8) + 4;
  const edges = [];
  const nodes = [];
  const node = (step, place, text, title, kind) => nodes.push(s("g", { class: kind },
    s("title", {}, title),
    s("rect", { x: x(step), y: y(place), width: WIDTH, height: HEIGHT, rx: 4 }),
    s("text", { x: x(step) + 6, y: y(place) + 17 }, text)));
  const edge = (step, from, to, kind) => {
    if (step > 0) {
      edges.push(s("path", { class: kind, d: `M${x(step) - GAP},${y(from) + HEIGHT / 2} L${x(step)},${y(to) + HEIGHT / 2}` }));
    }
  };
  steps.forEach(({ alive, ended }, step) => {
    alive.forEach(({ parent, token, log_probability: value }, place) => {
      const fate = lives[step][place];
      node(step, place, `${clip(visible(token))} ${value.toFixed(1)}`, `${token}: log p = ${value.toFixed(3)}`, fate);
      edge(step, parent, place, fate === "won" ? "best" : "edge");
    });
    ended.forEach(({ parent, score }, i) => {
      const place = alive.length + i;
      const won = best && best.step === step && best.parent === parent;
      node(step, place, `■ ${score.toFixed(2)}`, `${word("end")}: ${score.toFixed(3)}`, won ? "won" : "ended");
      edge(step, parent, place, won ? "best" : "edge");
    });
  });
  return s("svg", { width: x(steps.length), height: y(rows) + 4, role: "img", "aria-label": word("beams") }, edges, nodes);
}

function clip(text) {
  return text.length > 8 ? `${text.slice(0, 7)}…` : text;
}
