// The requests that the page makes, all to the server that it came from.

async function post(path, body) {
  const response = await fetch(path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  const found = await response.json();
  if (!response.ok) throw new Error(found.error);
  return found;
}

// What `chat_complete` takes besides the conversation, where the page does not say otherwise.
const SAMPLING = { max_length: 50, temperature: 1, top_k: 0, top_p: 1, seed: 0, repetition_penalty: 1, stop: [""] };

export async function models() {
  const response = await fetch("explore/models");
  return response.json();
}

/** Returns what a view of a model of weights shows. */
export function view(model, name, given) {
  return post(`explore/${encodeURIComponent(model.name)}/${name}`, given);
}

/** Returns the answer to a conversation, of messages with role and content. */
export async function chat(model, messages, options) {
  const said = messages.map(({ role, content }) => ({ role, content }));
  if (model.kind === "weights") return view(model, "chat", { messages: said, ...options });
  return answer(model, {
    roles: said.map(({ role }) => role), texts: said.map(({ content }) => content),
    ...SAMPLING, ...options,
  }, "chat_complete");
}

/** Returns the vectors of texts, from an export. */
export async function embed(model, texts, signature = "serving_default") {
  const path = `v1/models/${encodeURIComponent(model.name)}:predict`;
  const { outputs } = await post(path, { signature_name: signature, inputs: { text: texts } });
  return outputs.embedding ?? outputs;
}

/** Returns the outputs of one row: of an export through TF Serving's REST API. */
export async function answer(model, given, signature = "serving_default") {
  if (model.kind === "weights") return firsts((await view(model, "answer", given)).outputs);
  const inputs = Object.fromEntries(Object.entries(given).map(([name, value]) => [name, [value]]));
  const path = `v1/models/${encodeURIComponent(model.name)}:predict`;
  const { outputs } = await post(path, { signature_name: signature, inputs });
  return Array.isArray(outputs) ? { output: outputs[0] } : firsts(outputs);
}

function firsts(outputs) {
  return Object.fromEntries(Object.entries(outputs).map(([name, column]) => [name, column[0]]));
}
