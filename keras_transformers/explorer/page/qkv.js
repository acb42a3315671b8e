// How the query of a token, the keys and the values of one head interact, step by step.

import * as api from "./api.js";
import { floats, h, menu, percent, range, strips, visible } from "./dom.js";
import { stepper } from "./steps.js";
import { word } from "./words.js";

const MOST_KEYS = 40; // drawn: those that get the largest shares

export async function showQkv(model, given) {
  const root = h("div", {});
  const state = { query: 0, step: 0 };
  await open(root, model, given, {}, state);
  return [root];
}

/** Asks for a head, and draws it. */
async function open(root, model, given, chosen, state) {
  const found = await api.view(model, "qkv", { ...given, ...chosen });
  const names = ["query", "key", "value", "context", "scores", "probabilities"];
  const head = { ...found, ...Object.fromEntries(names.map((name) => [name, floats(found[name])])) };
  head.bias = found.bias && floats(found.bias);
  state.query = Math.min(state.query, head.queries.length - 1);
  const again = (changes) => open(root, model, given, changes, state);
  const [layers, heads] = head.kinds[head.kind];
  const { kind, layer } = head;
  const shared = heads > 1 && head.key_head !== head.head ? ` ${word("keyHead")} ${head.key_head + 1}.` : "";
  const body = h("div", {});
  const queries = h("div", { class: "tokens", id: "queries" }, head.queries.map((token, i) => h("button", {
    type: "button", class: "token", "aria-pressed": "false",
    click: () => choose(i), focus: () => choose(i), mouseenter: () => choose(i),
  }, visible(token))));
  const caption = h("p", { id: "caption" });
  const draw = () => {
    body.replaceChildren(table(head, state.query, state.step));
    caption.textContent = word("qkvSteps")[state.step];
    [...queries.children].forEach((button, i) => {
      button.setAttribute("aria-pressed", String(i === state.query));
      button.classList.toggle("chosen", i === state.query);
    });
  };
  const choose = (query) => {
    state.query = query;
    draw();
  };
  root.replaceChildren(
    h("div", { class: "row" },
      menu(word("kind"), Object.keys(head.kinds).map((each) => [each, word(each)]), kind, (to) => again({ kind: to })),
      menu(word("layer"), range(layers).map((i) => [i, i + 1]), layer, (to) => again({ kind, layer: to, head: head.head })),
      menu(word("head"), range(heads).map((i) => [i, i + 1]), head.head, (to) => again({ kind, layer, head: to }))),
    h("p", { class: "soft" }, `${word("qkvIntro")} ${head.dim}.${shared} ${word("hoverQuery")}`),
    queries,
    stepper(word("qkvSteps").length, (step) => {
      state.step = step;
      draw();
    }, state.step),
    caption, h("div", { class: "scroll" }, body));
}

/** Draws the first steps for one query: a row for each key. */
function table(head, query, step) {
  const { dim, keys, scale } = head;
  const row = (vectors, i) => vectors.subarray(i * dim, (i + 1) * dim);
  const q = row(head.query, query);
  const at = (matrix, key) => matrix[query * keys.length + key];
  const shown = range(keys.length)
    .sort((a, b) => at(head.probabilities, b) - at(head.probabilities, a))
    .slice(0, MOST_KEYS).sort((a, b) => a - b);
  const product = (key) => row(head.key, key).map((value, i) => value * q[i]);
  const weighted = (key) => row(head.value, key).map((value) => value * at(head.probabilities, key));
  const flat = (make) => shown.flatMap((key) => [...make(key)]);
  const context = row(head.context, query);
  const draw = {
    key: strips([...q, ...flat((key) => row(head.key, key))]),
    product: strips(flat(product)),
    value: strips(flat((key) => row(head.value, key))),
    weighted: strips([...context, ...flat(weighted)]),
  };
  // What belongs to a later step is not there yet; on a phone, neither is what belongs to an earlier one.
  const cell = (of, tag, properties, ...children) => {
    const kind = of > step ? "later" : of < step ? "earlier" : "";
    return h(tag, { ...properties, class: `${properties.class ?? ""} ${kind}`.trim(), hidden: of > step }, ...children);
  };
  const title = (of, text, kind = "") => cell(of, "th", { scope: "col", class: kind }, text);
  const number = (of, value) => cell(of, "td", { class: "number" }, value);
  const divided = scale === 1 ? "× 1" : `÷ √${dim}`;
  const rows = shown.map((key) => {
    const dot = product(key).reduce((sum, value) => sum + value, 0);
    const score = at(head.scores, key);
    const share = at(head.probabilities, key);
    const masked = score < -1e8;
    const bar = h("div", { class: "bar" });
    bar.style.width = `${100 * share}%`;
    return h("tr", { class: masked ? "soft" : "" },
      h("th", { scope: "row" }, visible(keys[key])),
      cell(0, "td", {}, draw.key(row(head.key, key), `k ${keys[key]}`)),
      cell(1, "td", {}, draw.product(product(key), `q × k ${keys[key]}`)),
      number(2, dot.toFixed(2)),
      head.bias ? number(2, at(head.bias, key).toFixed(2)) : null,
      number(2, masked ? word("masked") : score.toFixed(2)),
      cell(3, "td", { class: "share" }, h("div", { class: "bar-box" }, bar)),
      number(3, percent(share)),
      cell(4, "td", {}, draw.value(row(head.value, key), `v ${keys[key]}`)),
      cell(4, "td", {}, draw.weighted(weighted(key), `${percent(share)} × v ${keys[key]}`)));
  });
  const left = keys.length - shown.length;
  return h("table", { class: "qkv" },
    h("thead", {},
      h("tr", {}, h("th", { scope: "col" }, ""), title(0, "k"), title(1, "q × k"), title(2, "q · k", "number"),
        head.bias ? title(2, `+ ${word("bias")}`, "number") : null, title(2, `${word("score")} (${divided})`, "number"),
        cell(3, "th", { scope: "col", colspan: 2 }, "softmax"), title(4, "v"), title(4, "softmax × v"))),
    h("tbody", {},
      h("tr", {}, h("th", { scope: "row" }, `q: ${visible(head.queries[query])}`),
        cell(0, "td", {}, draw.key(q, `q ${head.queries[query]}`)), cell(1, "td", {}), cell(2, "td", {}),
        head.bias ? cell(2, "td", {}) : null, cell(2, "td", {}), cell(3, "td", { colspan: 2 }), cell(4, "td", {}), cell(4, "td", {})),
      rows,
      cell(4, "tr", {}, h("th", { scope: "row" }, word("sum")), ...range(head.bias ? 7 : 6).map(() => h("td", { class: "earlier" })),
        h("td", {}), h("td", { id: "context" }, draw.weighted(context, word("sum"))))),
    left ? h("caption", {}, `${word("otherKeys")}: ${left}`) : null);
}
