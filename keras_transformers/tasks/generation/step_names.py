"""Names the signatures with which a server writes texts step by step.

Between two steps, texts may join those that are being written, and others may leave. All state is
in the inputs and outputs. Rows of keys and values are right-aligned: a row's columns before its
first token are empty, so rows of different lengths share a cache. Servers that do not know these
signatures ignore them.

- PROMPTS takes the inputs of `complete`, CONVERSATIONS those of `chat_complete`. They check them,
  and return `token_ids` int32 (rows, length) and `num_tokens` int32 (rows,), the tokens that the
  model reads; `max_length` int32 (rows,), how many it may write; and `uniform` float32
  (rows, max_length), the numbers that draw them.
- READ takes `token_ids` int32 (rows, new), right-aligned, `num_empty` int32 (rows,), the empty
  columns with those of the cache, and a cache; it returns the cache with the new columns. A prompt
  is read up to its last token, in one call or several.
- STEP takes `token_ids` int32 (rows,), each row's last token, `num_empty`, the cache of the tokens
  before it; `had` int32 (rows, length), the row's tokens in any order, which only matter for a
  repetition penalty; `uniform` float32 (rows,), the next number; and `temperature`, `top_k`,
  `top_p`, `repetition_penalty`. It returns the new `token_ids`, their `log_probability` float32
  (rows,), `is_end` bool (rows,), and the cache with one more column.
- TEXT takes the new `token_ids` int32 (rows, length), `num_tokens` int32 (rows,) and `stop` strings
  (rows, stops), and returns `text` strings (rows,), up to the first stop string; `is_stopped` bool
  (rows,), whether there was one; and `token_bytes` and `tokens`, those of `complete_tokens`.

The cache is one input and output for each of its tensors, in the order of their names, which start
with CACHE. Their free axis after the first is that of the columns.
"""

__all__: list[str] = []

PROMPTS = "__prompts"
CONVERSATIONS = "__conversations"
READ = "__read"
STEP = "__step"
TEXT = "__text"
CACHE = "cache_"
