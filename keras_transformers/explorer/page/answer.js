// The answer, drawn by task, and for classifiers each token's share in it.

import * as api from "./api.js";
import { bars, h, heatmap, percent, shaded, visible } from "./dom.js";
import { word } from "./words.js";

const DRAWN = {
  classification: drawClasses, image_classification: drawClasses, fill_mask: drawMasks,
  tagging: drawTags, question_answering: drawSpan, translation: drawTranslation,
  generation: drawText, regression: drawScore, next_sentence: drawProbability,
  embedding: drawVector, multiple_choice: drawChoices, zero_shot_classification: drawLabels,
};

export async function showAnswer(model, given, { image }) {
  const outputs = await api.answer(model, given);
  const draw = DRAWN[model.task] ?? drawAnything;
  const parts = await draw(outputs, model, given, image);
  if (model.views.includes("shares")) parts.push(...(await drawShares(model, given)));
  if (model.kind === "export") parts.push(h("p", { class: "soft" }, word("only")));
  return parts;
}

function drawClasses(outputs, model, given, image) {
  const labels = model.labels.length ? model.labels : outputs.probabilities.map((_, i) => `${i}`);
  const pairs = outputs.probabilities.map((value, i) => [labels[i], value]);
  pairs.sort((a, b) => b[1] - a[1]);
  const parts = [h("p", { class: "big" }, `${word("label")}: ${outputs.label}`), bars(pairs.slice(0, 10))];
  if (image) parts.unshift(picture(image));
  return parts;
}

function drawChoices(outputs, model, given) {
  return [h("p", { class: "big" }, outputs.choice),
    bars(given.choices.map((choice, i) => [choice, outputs.probabilities[i]]))];
}

function drawLabels(outputs, model, given) {
  return [h("p", { class: "big" }, `${word("label")}: ${outputs.label}`),
    bars(given.labels.map((label, i) => [label, outputs.probabilities[i]]))];
}

export function picture(image) {
  return h("div", { class: "patches" },
    h("img", { src: `data:image/*;base64,${image}`, alt: word("image") }));
}

function drawMasks(outputs) {
  return outputs.tokens.slice(0, outputs.num_masks ?? outputs.tokens.length).flatMap((tokens, i) => [
    h("h2", {}, `[MASK] ${i + 1}`),
    bars(tokens.map((token, k) => [token, outputs.probabilities[i][k]])),
  ]);
}

function drawTags(outputs) {
  const line = outputs.tokens.map((token, i) => {
    const label = outputs.labels[i];
    if (label === "O") return [token, " "];
    const element = h("span", { class: "tag", title: percent(outputs.scores[i]) }, token,
      h("sub", {}, ` ${label}`));
    element.style.backgroundColor = `hsl(${hue(label.replace(/^[BI]-/, ""))} 70% 50% / 0.25)`;
    return [element, " "];
  });
  return [h("p", { class: "big" }, line.flat())];
}

function hue(text) {
  return [...text].reduce((sum, character) => (sum * 31 + character.codePointAt(0)) % 360, 7);
}

function drawSpan(outputs, model, given) {
  if (!outputs.answer) return [h("p", { class: "big" }, word("nothing"))];
  const characters = [...given.context];
  const [start, end] = [outputs.start, outputs.end];
  return [
    h("p", { class: "big" }, outputs.answer),
    h("h2", {}, word("span")),
    h("p", {}, characters.slice(0, start).join(""), h("mark", {}, characters.slice(start, end).join("")),
      characters.slice(end).join("")),
    h("p", { class: "soft" }, `${word("score")} ${outputs.score.toFixed(3)}`),
  ];
}

async function drawTranslation(outputs, model, given) {
  const parts = [h("p", { class: "big" }, outputs.translation),
    h("p", { class: "soft" }, `${word("score")} ${outputs.score.toFixed(3)}`)];
  if (model.kind !== "export") return parts;
  if (model.signatures.includes("n_best")) {
    const best = await api.answer(model, given, "n_best");
    parts.push(h("h2", {}, word("more")), h("ol", {}, best.translations.map((text, i) =>
      h("li", {}, `${text} `, h("span", { class: "soft" }, best.scores[i].toFixed(3))))));
  }
  if (model.signatures.includes("attend")) {
    const found = await api.answer(model, { ...given, translation: outputs.translation }, "attend");
    const [rows, columns] = [found.target_tokens, found.source_tokens];
    parts.push(h("h2", {}, word("alignment")), h("div", { class: "scroll" }, h("table", {},
      h("tr", {}, h("th", {}, ""), columns.map((token) => h("th", { scope: "col" }, visible(token)))),
      rows.map((token, i) => h("tr", {}, h("th", { scope: "row" }, visible(token)),
        columns.map((_, k) => h("td", {}, shaded(found.attention[i][k].toFixed(2),
          found.attention[i][k], token))))))));
  }
  return parts;
}

function drawText(outputs, model, given) {
  return [h("p", { class: "big" }, given.prompt, h("mark", {}, outputs.text)),
    h("p", { class: "soft" }, `log p = ${outputs.log_probability.toFixed(3)}`)];
}

function drawScore(outputs) {
  return [h("p", { class: "big" }, `${word("score")}: ${(outputs.score ?? outputs.output).toFixed(4)}`)];
}

function drawProbability(outputs) {
  return [h("p", { class: "big" }, percent(outputs.probability ?? outputs.output))];
}

function drawVector(outputs) {
  const vector = outputs.embedding ?? outputs.output;
  const largest = Math.max(...vector.map(Math.abs));
  const label = `${word("vector")} (${vector.length})`;
  return [
    h("h2", {}, label),
    heatmap((i) => Math.abs(vector[i]) / largest, 1, vector.length, { scale: 2, label }),
    h("p", { class: "soft" }, `${word("similar")}: ${vector.slice(0, 8).map((x) => x.toFixed(4)).join(", ")} …`),
  ];
}

function drawAnything(outputs) {
  const lines = Object.entries(outputs).map(([name, value]) =>
    h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, JSON.stringify(value).slice(0, 300))));
  return [h("table", {}, lines)];
}

async function drawShares(model, given) {
  const found = await api.view(model, "shares", given);
  const parts = [h("h2", {}, word("shares"))];
  for (const name of ["gradient", "rollout"]) {
    if (!found[name]) continue;
    const { tokens, shares } = found[name];
    const largest = Math.max(...shares.map(Math.abs), 1e-9);
    parts.push(h("p", { class: "soft" }, word(name)), h("div", { class: "tokens" },
      tokens.map((token, i) => shaded(token, shares[i] / largest, shares[i].toFixed(4)))));
  }
  parts.push(h("p", { class: "soft" }, word("caution")));
  return parts;
}
