// The page: which model, which texts, which view.

import * as address from "./address.js";
import * as api from "./api.js";
import { h } from "./dom.js";
import { currentLanguage, otherLanguage, taskName, word } from "./words.js";
import { showAnswer } from "./answer.js";
import { showAttention } from "./attention.js";
import { showBeams } from "./beams.js";
import { showChat } from "./chat.js";
import { showDecoding } from "./decoding.js";
import { showInputs } from "./inputs.js";
import { showNext } from "./next.js";
import { showParameters } from "./parameters.js";
import { showPositions } from "./positions.js";
import { showQkv } from "./qkv.js";
import { EXAMPLE, showSearch } from "./search.js";
import { showTokens } from "./tokens.js";

// In the order of the tabs. `shares` is part of the answer.
const VIEWS = {
  answer: showAnswer, chat: showChat, search: showSearch, next: showNext,
  attention: showAttention, qkv: showQkv, decoding: showDecoding, beams: showBeams,
  tokens: showTokens, inputs: showInputs, positions: showPositions, parameters: showParameters,
};
// Views that read other texts than the model's inputs, with what stands there at first.
const FIELDS = { chat: { message: "" }, search: EXAMPLE };
const $ = (id) => document.getElementById(id);
const state = { models: [], model: null, view: "answer", texts: {}, run: 0 };

/** Returns the names of what a view of a model reads. */
function fields(model = state.model, view = state.view) {
  return FIELDS[view] ? Object.keys(FIELDS[view]) : model.inputs;
}

/** Returns whether an input takes a list of texts, of which the form has one per line. */
function isList(name) {
  return Array.isArray(state.model.example[name]);
}

/** Returns the texts in the form as they stand there, by field. */
function typed() {
  return Object.fromEntries([...$("inputs").querySelectorAll("textarea")].map(
    (field) => [field.id.replace("input-", ""), field.value]));
}

/** Returns what the form gives the view, by field. */
function given() {
  const texts = typed();
  return Object.fromEntries(fields().map((name) => {
    if (name === "image_bytes") return [name, { b64: state.image }];
    return [name, isList(name) ? texts[name].split("\n").filter(Boolean) : texts[name]];
  }));
}

function say() {
  document.documentElement.lang = currentLanguage();
  for (const element of document.querySelectorAll("[data-word]")) {
    element.textContent = word(element.dataset.word);
  }
  $("language").textContent = word("other");
  $("language").lang = currentLanguage() === "en" ? "zh" : "en";
}

/** Shows what the address names, or says why it cannot; the first model if it names none. */
function openAddress() {
  const { model, view = "answer", texts } = address.read();
  const names = state.models.map(({ name }) => name);
  const found = state.models[model === undefined ? 0 : names.indexOf(model)];
  const unknown = (what, given, known) => `${word(what)}: ${given}; ${word("available")}: ${known.join(", ")}`;
  if (!found) return chooseModel(names[0], "answer", {}, unknown("noModel", model, names));
  if (!found.views.includes(view)) {
    return chooseModel(found.name, "answer", {}, unknown("noView", view, found.views));
  }
  const known = fields(found, view);
  const others = Object.keys(texts).filter((name) => !known.includes(name));
  return chooseModel(found.name, view, texts, others.length ? unknown("noField", others.join(", "), known) : "");
}

function chooseModel(name, view = "answer", texts = {}, problem = "") {
  state.model = state.models.find((each) => each.name === name);
  state.view = view;
  state.texts = texts;
  state.image = state.model.example.image_bytes?.b64;
  $("model").value = name;
  drawForm();
  drawTabs();
  show(problem);
}

function drawForm() {
  const { model } = state;
  $("about").textContent = `${taskName(model.task)} · ${word(model.kind)} · `
    + `${model.parameters.toLocaleString("en")} ${word("of")}`;
  const labels = fields().map((name) => {
    if (name === "image_bytes") {
      return h("label", {}, word(name),
        h("input", { id: `input-${name}`, type: "file", accept: "image/*", change: readImage }));
    }
    const text = state.texts[name] ?? FIELDS[state.view]?.[name] ?? lines(model.example[name] ?? "");
    const rows = Math.min(8, Math.max(2, text.split("\n").length));
    const field = h("textarea", { id: `input-${name}`, rows, spellcheck: "false", keydown: runByKey });
    field.value = text;
    return h("label", {}, word(name), field);
  });
  $("inputs").replaceChildren(...labels, h("button", { type: "submit" }, word("run")));
}

function lines(texts) {
  return Array.isArray(texts) ? texts.join("\n") : texts;
}

function readImage(event) {
  const [file] = event.target.files;
  const reader = new FileReader();
  reader.onload = () => {
    state.image = reader.result.split(",")[1];
    show();
  };
  if (file) reader.readAsDataURL(file);
}

function runByKey(event) {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    show();
  }
}

function drawTabs() {
  const names = Object.keys(VIEWS).filter((name) => state.model.views.includes(name));
  const tabs = names.map((name) => h("button", {
    type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "panel",
    "aria-selected": String(name === state.view), tabindex: name === state.view ? 0 : -1,
    click: () => chooseView(name), keydown: (event) => moveTab(event, names, name),
  }, word(name)));
  $("tabs").replaceChildren(...tabs);
  $("panel").setAttribute("aria-labelledby", `tab-${state.view}`);
}

function moveTab(event, names, name) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  chooseView(names[(names.indexOf(name) + step + names.length) % names.length]);
  $(`tab-${state.view}`).focus();
}

function chooseView(name) {
  const before = fields().join();
  Object.assign(state.texts, typed());
  state.view = name;
  if (fields().join() !== before) drawForm();
  drawTabs();
  show();
}

/** Shows the view, or a problem; what an earlier request answers after a later one is dropped. */
async function show(problem = "") {
  const run = ++state.run;
  const panel = $("panel");
  const wait = setTimeout(() => panel.replaceChildren(h("p", { class: "soft" }, word("waiting"))), 150);
  try {
    if (problem) throw new Error(problem);
    address.write(state.model.name, state.view, typed());
    const options = { image: state.image, again: () => show() };
    const parts = await VIEWS[state.view](state.model, given(), options);
    if (run === state.run) panel.replaceChildren(...parts);
  } catch (error) {
    if (run === state.run) {
      panel.replaceChildren(h("p", { class: "error", role: "alert" }, `${word("error")}: ${error.message}`));
    }
  } finally {
    clearTimeout(wait);
    if (run === state.run) panel.dataset.shown = `${state.model.name} ${state.view} ${run}`;
  }
}

$("inputs").addEventListener("submit", (event) => {
  event.preventDefault();
  show();
});
$("model").addEventListener("change", (event) => chooseModel(event.target.value));
$("language").addEventListener("click", () => {
  Object.assign(state.texts, typed());
  otherLanguage();
  say();
  drawForm();
  drawTabs();
  show();
});
addEventListener("hashchange", openAddress);

say();
state.models = await api.models();
$("model").replaceChildren(...state.models.map(({ name }) => h("option", { value: name }, name)));
openAddress();
