// The page: which model, which texts, which view.

import * as api from "./api.js";
import { h } from "./dom.js";
import { currentLanguage, otherLanguage, taskName, word } from "./words.js";
import { showAnswer } from "./answer.js";
import { showAttention } from "./attention.js";
import { showBeams } from "./beams.js";
import { showNext } from "./next.js";
import { showParameters } from "./parameters.js";
import { showPositions } from "./positions.js";
import { showTokens } from "./tokens.js";

// In the order of the tabs. `shares` is part of the answer.
const VIEWS = {
  answer: showAnswer, next: showNext, attention: showAttention, beams: showBeams,
  tokens: showTokens, positions: showPositions, parameters: showParameters,
};
const $ = (id) => document.getElementById(id);
const state = { models: [], model: null, view: "answer", run: 0 };

/** Returns whether an input takes a list of texts, of which the form has one per line. */
function isList(name) {
  return Array.isArray(state.model.example[name]);
}

/** Returns the texts in the form, by input. */
function given() {
  return Object.fromEntries(state.model.inputs.map((name) => {
    const field = $(`input-${name}`);
    if (name === "image_bytes") return [name, { b64: state.image }];
    return [name, isList(name) ? field.value.split("\n").filter(Boolean) : field.value];
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

function chooseModel(name) {
  state.model = state.models.find((each) => each.name === name);
  state.view = "answer";
  state.image = state.model.example.image_bytes?.b64;
  drawForm();
  drawTabs();
  show();
}

function drawForm() {
  const { model } = state;
  $("about").textContent = `${taskName(model.task)} · ${word(model.kind)} · `
    + `${model.parameters.toLocaleString("en")} ${word("of")}`;
  const fields = model.inputs.map((name) => {
    const field = name === "image_bytes"
      ? h("input", { id: `input-${name}`, type: "file", accept: "image/*", change: readImage })
      : h("textarea", { id: `input-${name}`, rows: 2, spellcheck: "false", keydown: runByKey });
    if (name !== "image_bytes") field.value = lines(model.example[name] ?? "");
    return h("label", {}, word(name), field);
  });
  $("inputs").replaceChildren(...fields, h("button", { type: "submit" }, word("run")));
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
  state.view = name;
  drawTabs();
  show();
}

/** Shows the view; what an earlier request answers after a later one is dropped. */
async function show() {
  const run = ++state.run;
  const panel = $("panel");
  const wait = setTimeout(() => panel.replaceChildren(h("p", { class: "soft" }, word("waiting"))), 150);
  try {
    const parts = await VIEWS[state.view](state.model, given(), { image: state.image });
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
  const texts = given();
  otherLanguage();
  say();
  drawForm();
  for (const [name, text] of Object.entries(texts)) {
    if (name !== "image_bytes") $(`input-${name}`).value = lines(text);
  }
  drawTabs();
  show();
});

say();
state.models = await api.models();
$("model").replaceChildren(...state.models.map(({ name }) => h("option", { value: name }, name)));
chooseModel(state.models[0].name);
