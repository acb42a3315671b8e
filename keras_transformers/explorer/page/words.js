// What the page says, in English and Chinese.

const WORDS = {
  en: {
    explorer: "explorer", model: "Model", run: "Run", other: "中文", parameters: "Parameters",
    answer: "Answer", attention: "Attention", beams: "Beams", tokens: "Tokens",
    positions: "Positions", next: "Next token", qkv: "Q, K, V", decoding: "Decoding", inputs: "Input",
    step: "Step", back: "Back", forward: "Forward", play: "Play", pause: "Pause",
    qkvIntro: "A head projects each token's vector to a query q, a key k and a value v, each of width",
    keyHead: "It shares its keys and values: they are those of key head", masked: "masked", bias: "bias", sum: "sum",
    hoverQuery: "Hover over a token, or move to it with Tab, to choose the query.",
    qkvSteps: [
      "1. The query of the chosen token meets the key of every token. Blue numbers are above 0, red ones below.",
      "2. Query and key are multiplied number by number.",
      "3. The products add up to q · k. Divided by the square root of the width, this is the score; masked keys get none.",
      "4. The softmax turns the scores into shares that add up to 100 %.",
      "5. Each value counts with its share; their sum is what the head returns for the token.",
    ],
    otherKeys: "keys with smaller shares, not drawn",
    decodingIntro: "The decoder writes one token per step, here the likeliest one, and reads it in the next step. The colour is the attention of the last token read, as a mean over the heads.",
    sourceOnce: "Source, encoded once", reads: "The decoder reads", predicts: "The likeliest next tokens", written: "Written so far",
    noSteps: "There is nothing to decode.",
    inputIntro: "At each position the model reads the sum of these vectors.",
    pairIntro: "Both texts are one sequence: a segment embedding tells A from B. At each position the model reads the sum of these vectors.",
    values: "Values drawn", token: "token", segment: "segment", position: "position",
    chat: "Chat", search: "Search", message: "Message", lines: "Lines to search, one per line",
    user: "You", assistant: "Model", say: "Write a message and press Run, or Ctrl+Enter.",
    cut: "The answer was cut: it reached the most tokens allowed.",
    nearest: "Nearest lines", noLines: "give at least one line to search",
    cosine: "The number is the cosine of the line's and the question's vectors. Without a blue token it falls; without a red one it rises. The stronger the colour, the more.",
    cosineAlone: "The number is the cosine of the line's and the question's vectors.",
    noModel: "The address names an unknown model", noView: "The address names an unknown tab",
    noField: "The address names an unknown text", available: "available",
    weights: "weights", export: "export", of: "parameters", waiting: "Working …",
    label: "Label", probability: "probability", score: "score", nothing: "no answer",
    shares: "Share of each token in the answer",
    gradient: "Integrated gradients: blue speaks for the answer, red against it.",
    rollout: "Attention rollout: attention followed through all layers.",
    caution: "Two ways to look; neither proves what the model does.",
    layer: "Layer", head: "Head", mean: "mean of heads", kind: "Kind",
    encoder: "encoder", decoder: "decoder", cross: "decoder to encoder",
    hover: "Hover over a token, or move to it with Tab, to see what it attends to.",
    queries: "Tokens", keys: "What the token attends to", allHeads: "All layers and heads",
    alive: "Each column is a step; a line leads to each hypothesis from the one it continues. Green: it ended. Blue: the translation. Grey: it died.",
    translation: "Translation", alignment: "Alignment", more: "Translations of all beams",
    choose: "Choose the next token; the likeliest ones are listed.", end: "end of text",
    full: "The model has no more positions.", restart: "Start again",
    wordpiece: "WordPiece: the longest piece of the vocabulary first, then the longest of the rest.",
    byte_pairs: "Byte pairs: the pair of symbols that the vocabulary learned first is joined first.",
    sentencepiece: "SentencePiece: pieces are joined in the order in which they were learned; · is a space.",
    plain: "Tokens of this vocabulary.", tried: "not in the vocabulary", unknown: "unknown",
    sinusoidal: "Sinusoidal encoding: each column is a dimension, each row a position.",
    learned: "Learned embedding: each column is a dimension, each row a position.",
    relative: "Relative bias: each column is a distance from -32 to 32, each row a head.",
    only: "An export answers texts. To look inside, open the folder of weights.",
    error: "Error", image: "Image", span: "Answer in the context",
    text: "Text", text_b: "Second text", choices: "Choices, one per line", labels: "Labels, one per line", documents: "Documents, one per line", question: "Question", context: "Context", prompt: "Prompt",
    image_bytes: "Image", vector: "Vector", similar: "first values",
  },
  zh: {
    explorer: "探索", model: "模型", run: "运行", other: "English", parameters: "参数",
    answer: "回答", attention: "注意力", beams: "束搜索", tokens: "词元", positions: "位置",
    next: "下一个词元", qkv: "Q、K、V", decoding: "解码", inputs: "输入",
    step: "步骤", back: "后退", forward: "前进", play: "播放", pause: "暂停",
    qkvIntro: "每个注意力头把每个词元的向量投影成查询 q、键 k 和值 v，各自的宽度为",
    keyHead: "多个头共用键和值，这里用的是键头", masked: "已掩码", bias: "偏置", sum: "求和",
    hoverQuery: "将鼠标移到词元上，或用 Tab 键移动到词元，选择查询。",
    qkvSteps: [
      "1. 所选词元的查询与每个词元的键相遇。蓝色表示大于 0，红色表示小于 0。",
      "2. 查询和键逐个元素相乘。",
      "3. 乘积之和就是 q · k，再除以宽度的平方根得到分数；被掩码的键没有分数。",
      "4. softmax 把分数变成总和为 100 % 的权重。",
      "5. 每个值按权重加权，求和后就是这个头对该词元的输出。",
    ],
    otherKeys: "权重较小、没有画出的键",
    decodingIntro: "解码器每一步写出一个词元（这里取最可能的那个），下一步再把它读入。颜色表示最后读入的词元的注意力，取各头的平均。",
    sourceOnce: "源文本，只编码一次", reads: "解码器读入", predicts: "最可能的下一个词元", written: "已写出的文本",
    noSteps: "没有可解码的内容。",
    inputIntro: "在每个位置，模型读入的是这些向量之和。",
    pairIntro: "两段文本拼成一个序列，用段嵌入区分 A 和 B。在每个位置，模型读入的是这些向量之和。",
    values: "画出的数值", token: "词元", segment: "段", position: "位置",
    chat: "对话", search: "搜索", message: "消息", lines: "要搜索的文本，每行一条",
    user: "您", assistant: "模型", say: "写一条消息，然后点“运行”或按 Ctrl+Enter。",
    cut: "回答被截断：已达到允许的最多词元数。",
    nearest: "最接近的行", noLines: "请至少给出一行要搜索的文本",
    cosine: "数字是该行与问题的向量的余弦。去掉蓝色词元余弦会下降，去掉红色词元会上升；颜色越深，变化越大。",
    cosineAlone: "数字是该行与问题的向量的余弦。",
    noModel: "网址中的模型不存在", noView: "网址中的标签页不存在",
    noField: "网址中的文本名称不存在", available: "可选",
    weights: "权重", export: "导出模型", of: "个参数", waiting: "计算中……",
    label: "标签", probability: "概率", score: "分数", nothing: "没有答案",
    shares: "每个词元对回答的贡献",
    gradient: "积分梯度：蓝色支持该回答，红色反对。",
    rollout: "注意力展开：沿所有层追踪注意力。",
    caution: "两种观察方式，都不能证明模型的实际机制。",
    layer: "层", head: "头", mean: "各头平均", kind: "种类",
    encoder: "编码器", decoder: "解码器", cross: "解码器到编码器",
    hover: "将鼠标移到词元上，或用 Tab 键移动到词元，查看它关注什么。",
    queries: "词元", keys: "该词元关注的内容", allHeads: "所有层和头",
    alive: "每一列是一步；连线从前一个假设指向延续它的假设。绿色：已结束。蓝色：最终译文。灰色：被淘汰。",
    translation: "译文", alignment: "对齐", more: "所有束的译文",
    choose: "选择下一个词元；列出的是最可能的词元。", end: "文本结束",
    full: "模型没有更多位置了。", restart: "重新开始",
    wordpiece: "WordPiece：先取词表中最长的片段，再取剩余部分中最长的片段。",
    byte_pairs: "字节对：词表最先学到的符号对最先合并。",
    sentencepiece: "SentencePiece：片段按学习的先后顺序合并；· 表示空格。",
    plain: "该词表的词元。", tried: "不在词表中", unknown: "未知",
    sinusoidal: "正弦编码：每列是一个维度，每行是一个位置。",
    learned: "学习得到的嵌入：每列是一个维度，每行是一个位置。",
    relative: "相对位置偏置：每列是 -32 到 32 的一个距离，每行是一个头。",
    only: "导出模型只回答文本。要查看内部，请打开权重文件夹。",
    error: "错误", image: "图像", span: "上下文中的答案",
    text: "文本", text_b: "第二段文本", documents: "文档，每行一篇", choices: "选项，每行一个", labels: "标签，每行一个", question: "问题", context: "上下文", prompt: "提示",
    image_bytes: "图像", vector: "向量", similar: "前几个值",
  },
};

const TASKS_IN_CHINESE = {
  classification: "分类", zero_shot_classification: "零样本分类", multi_label_classification: "多标签分类", regression: "回归",
  tagging: "序列标注", question_answering: "问答", multiple_choice: "多项选择", reranking: "重排序",
  replaced_tokens: "替换词元检测", fill_mask: "掩码填空", next_sentence: "下一句判断", embedding: "文本向量", sparse_embedding: "稀疏文本向量",
  late_interaction: "后期交互", word_embedding: "词向量",
  translation: "翻译", generation: "文本生成", image_classification: "图像分类",
};

let language = navigator.language.startsWith("zh") ? "zh" : "en";

export function word(name) {
  return WORDS[language][name] ?? name;
}

export function taskName(task) {
  return (language === "zh" && TASKS_IN_CHINESE[task]) || task.replaceAll("_", " ");
}

export function currentLanguage() {
  return language;
}

export function otherLanguage() {
  language = language === "en" ? "zh" : "en";
}
