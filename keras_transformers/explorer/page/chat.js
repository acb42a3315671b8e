// A conversation with a chat model.

import * as api from "./api.js";
import { h } from "./dom.js";
import { word } from "./words.js";

const OPTIONS = { max_length: 100, top_k: 1 }; // the likeliest token each time
const conversations = new Map(); // name of a model -> its messages

export async function showChat(model, { message }, { again }) {
  let messages = conversations.get(model.name) ?? [];
  if (message.trim()) {
    messages = [...messages, { role: "user", content: message }];
    const { text, finished } = await api.chat(model, messages, OPTIONS);
    messages.push({ role: "assistant", content: text, finished });
    conversations.set(model.name, messages);
    const field = document.getElementById("input-message");
    if (field?.value === message) field.value = "";
  }
  const restart = () => {
    conversations.delete(model.name);
    again();
  };
  return [
    h("ol", { class: "chat", id: "chat" }, messages.map(({ role, content, finished }) =>
      h("li", { class: role }, h("span", { class: "soft" }, word(role)), h("p", {}, content),
        finished === false ? h("p", { class: "soft" }, word("cut")) : null))),
    messages.length
      ? h("button", { type: "button", click: restart }, word("restart"))
      : h("p", { class: "soft" }, word("say")),
  ];
}
