// Generation token by token, with the alternatives.

import * as api from "./api.js";
import { h, percent, visible } from "./dom.js";
import { word } from "./words.js";

export async function showNext(model, given) {
  const root = h("div", {});
  await draw(root, model, given.prompt, []);
  return [root];
}

async function draw(root, model, prompt, added, focus = false) {
  const found = await api.view(model, "next", { prompt, added });
  const go = (ids) => draw(root, model, prompt, ids, true);
  const choices = found.alternatives.map(({ id, token, probability }) => {
    const name = id === found.end ? word("end") : visible(token);
    const button = h("button", { type: "button", class: "token", click: () => go([...added, id]) },
      `${name} `, h("span", { class: "soft" }, percent(probability)));
    button.style.backgroundColor = `rgba(var(--mark), ${probability * 0.6})`;
    return button;
  });
  root.replaceChildren(
    h("p", { class: "big", id: "generated" }, prompt, h("mark", {}, found.text.slice(prompt.length))),
    h("p", { class: "soft" }, word(found.is_full ? "full" : "choose")),
    h("div", { class: "tokens" }, choices),
    h("div", { class: "row" },
      h("button", { type: "button", disabled: !added.length, click: () => go(added.slice(0, -1)) }, word("back")),
      h("button", { type: "button", disabled: !added.length, click: () => go([]) }, word("restart"))));
  if (focus) choices[0]?.focus();
}
