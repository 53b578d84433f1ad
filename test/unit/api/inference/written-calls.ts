import type { ToolPlan } from '#api/inference/chat/chat-tools.ts'
import type { AnswerDialect } from '#shared/contracts/answer-formats.ts'

const WEATHER = {
  name: 'get_weather',
  parameters: {
    type: 'object',
    properties: {
      city: { type: 'string' },
      days: { type: 'integer' },
      exact: { type: 'boolean' },
      level: { enum: [1, 'all'] },
      unit: { enum: ['1', '2'] },
      free: true,
    },
  },
}
export const TOOLS: ToolPlan = {
  tools: [WEATHER, { name: 'now' }],
  choice: 'auto',
  callsMax: 128,
  isLegacy: false,
}
const PARIS = { name: 'get_weather', arguments: { city: 'Paris', days: 2 } }
export const NOW = { name: 'now', arguments: {} }

/** An answer of a model, and its parts. */
export interface Case {
  readonly title: string
  readonly dialect: AnswerDialect
  readonly text: string
  readonly content?: string
  readonly reasoning?: string
  readonly calls?: readonly { readonly name: string; readonly arguments: unknown }[]
  readonly tools?: ToolPlan | undefined
}

const JSON_PARIS = '{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}'
export const JSON_NOW = '{"name": "now", "arguments": {}}'

// The texts follow the published chat templates and the parsers of vLLM 0.11.
export const CALLS: readonly Case[] = [
  {
    title: 'Hermes and Qwen',
    dialect: { calls: 'hermes' },
    text: `Sure.\n<tool_call>\n${JSON_PARIS}\n</tool_call>\n<tool_call>\n${JSON_NOW}\n</tool_call>`,
    content: 'Sure.',
    calls: [PARIS, NOW],
  },
  {
    title: 'Hermes calls in a list',
    dialect: { calls: 'hermes' },
    text: `<tool_call>[${JSON_PARIS}, ${JSON_NOW}]</tool_call>`,
    calls: [PARIS, NOW],
  },
  {
    title: 'Llama 3 with JSON, bare',
    dialect: { calls: 'llama3_json' },
    text: '{"name": "get_weather", "parameters": {"city": "Paris", "days": 2}}; {"name": "now", "parameters": {}}',
    calls: [PARIS, NOW],
  },
  {
    title: 'Llama 3 with JSON behind its token',
    dialect: { calls: 'llama3_json' },
    text: '<|python_tag|>{"name": "now", "parameters": {}}',
    calls: [NOW],
  },
  {
    title: 'an object of Llama 3 that is not a call',
    dialect: { calls: 'llama3_json' },
    text: '{"name": "Ada", "parameters": {"born": 1815}} is a person {"name": "now", "parameters": {}}',
    content:
      '{"name": "Ada", "parameters": {"born": 1815}} is a person {"name": "now", "parameters": {}}',
  },
  {
    title: 'a cut object of Llama 3 that is not a call',
    dialect: { calls: 'llama3_json' },
    text: ' {"answer": 4',
    content: ' {"answer": 4',
  },
  {
    title: 'Llama 3.2 with Python',
    dialect: { calls: 'pythonic' },
    text: "[get_weather(city='Pa\\'ris, (F)', days=2), now()]",
    calls: [{ name: 'get_weather', arguments: { city: "Pa'ris, (F)", days: 2 } }, NOW],
  },
  {
    title: 'Llama 4 with Python between tokens',
    dialect: { calls: 'pythonic' },
    text: '<|python_start|>[get_weather(city="Paris", days=[1, {"a": None}, True])]<|python_end|>',
    calls: [{ name: 'get_weather', arguments: { city: 'Paris', days: [1, { a: null }, true] } }],
  },
  {
    title: 'a list that is not a call in Python',
    dialect: { calls: 'pythonic' },
    text: '[see (1)] and [get_weather(city="x")]',
    content: '[see (1)] and [get_weather(city="x")]',
  },
  {
    title: 'a function that is not offered in Python',
    dialect: { calls: 'pythonic' },
    text: '[rm(path="/")]',
    content: '[rm(path="/")]',
  },
  {
    title: 'Mistral with a list',
    dialect: { calls: 'mistral' },
    text: `[TOOL_CALLS] [${JSON_PARIS}, {"name": "now", "arguments": {}, "id": "abcdefghi"}]`,
    calls: [PARIS, NOW],
  },
  {
    title: 'Mistral with names',
    dialect: { calls: 'mistral_named' },
    text: 'So:[TOOL_CALLS]get_weather[ARGS]{"city": "Paris", "days": 2}[TOOL_CALLS]now[CALL_ID]abcdefghi[ARGS]{}',
    content: 'So:',
    calls: [PARIS, NOW],
  },
  {
    title: 'Mistral with names and nothing between',
    dialect: { calls: 'mistral' },
    text: '[TOOL_CALLS]now{}',
    calls: [NOW],
  },
  {
    title: 'FunctionGemma',
    dialect: { calls: 'gemma' },
    text: '<start_function_call>call:get_weather{city:<escape>Paris<escape>,days:2}<end_function_call><start_function_call>call:now{}<end_function_call>',
    calls: [PARIS, NOW],
  },
  {
    title: 'Gemma 4',
    dialect: { calls: 'gemma4' },
    text: '<|tool_call>call:get_weather{city:<|"|>Paris<|"|>,days:[1,{a:true}]}<tool_call|>',
    calls: [{ name: 'get_weather', arguments: { city: 'Paris', days: [1, { a: true }] } }],
  },
  {
    title: 'Phi-4-mini',
    dialect: { calls: 'phi4' },
    text: `<|tool_call|>[${JSON_PARIS}]<|/tool_call|>`,
    calls: [PARIS],
  },
  {
    title: 'Phi-4-mini with its word',
    dialect: { calls: 'phi4' },
    text: `functools[${JSON_PARIS}, ${JSON_NOW}]`,
    calls: [PARIS, NOW],
  },
  {
    title: 'the word of Phi-4-mini in a text',
    dialect: { calls: 'phi4' },
    text: 'Import functools first, [1] then functools[0].',
    content: 'Import functools first, [1] then functools[0].',
  },
  {
    title: 'Granite',
    dialect: { calls: 'granite' },
    text: `<|tool_call|>[${JSON_PARIS}, ${JSON_NOW}]`,
    calls: [PARIS, NOW],
  },
  {
    title: 'DeepSeek V3',
    dialect: { calls: 'deepseek_v3' },
    text: 'Hm.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{"city": "Paris", "days": 2}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    content: 'Hm.',
    calls: [PARIS, NOW],
  },
  {
    title: 'DeepSeek V3.1',
    dialect: { calls: 'deepseek_v31' },
    text: '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Paris", "days": 2}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    calls: [PARIS],
  },
  {
    title: 'Qwen3-Coder',
    dialect: { calls: 'qwen3_coder' },
    text: '<tool_call>\n<function=get_weather>\n<parameter=city>\nPa\n"ris"\n</parameter>\n<parameter=days>\n2\n</parameter>\n<parameter=exact>\nTrue\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>',
    calls: [{ name: 'get_weather', arguments: { city: 'Pa\n"ris"', days: 2, exact: true } }, NOW],
  },
  {
    title: 'Qwen3-Coder with values whose schema states no type',
    dialect: { calls: 'qwen3_coder' },
    text: '<tool_call>\n<function=get_weather>\n<parameter=level>\n1\n</parameter>\n<parameter=unit>\n1\n</parameter>\n<parameter=free>\n1\n</parameter>\n</function>\n</tool_call>',
    calls: [{ name: 'get_weather', arguments: { level: 1, unit: '1', free: '1' } }],
  },
  {
    title: 'Seed-OSS',
    dialect: { calls: 'seed_oss' },
    text: '<seed:tool_call>\n<function=get_weather>\n<parameter=city>Paris</parameter>\n<parameter=days>2</parameter>\n</function>\n</seed:tool_call>\n<seed:tool_call>\n<function=now>\n</function>\n</seed:tool_call>',
    calls: [PARIS, NOW],
  },
  {
    title: 'GLM-4.5 and 4.6',
    dialect: { calls: 'glm45' },
    text: 'So.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>\n<tool_call>now\n</tool_call>',
    content: 'So.',
    calls: [PARIS, NOW],
  },
  {
    title: 'GLM-4.7',
    dialect: { calls: 'glm47' },
    text: '<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value><arg_key>days</arg_key><arg_value>2</arg_value></tool_call><tool_call>now</tool_call>',
    calls: [PARIS, NOW],
  },
  {
    title: 'a name of GLM that is not offered',
    dialect: { calls: 'glm47' },
    text: '<tool_call>later</tool_call>',
    content: '<tool_call>later',
  },
  {
    title: 'MiniMax-M2',
    dialect: { calls: 'minimax_m2' },
    text: 'So.\n<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Paris</parameter>\n<parameter name="days">2</parameter>\n</invoke>\n<invoke name="now">\n</invoke>\n</minimax:tool_call>',
    content: 'So.',
    calls: [PARIS, NOW],
  },
  {
    title: 'MiniCPM5',
    dialect: { calls: 'minicpm5' },
    text: '<function name="get_weather"><param name="city"><![CDATA[</param> &]]></param><param name="days">2</param></function>\n<function name="now"></function>',
    calls: [{ name: 'get_weather', arguments: { city: '</param> &', days: 2 } }, NOW],
  },
  {
    title: 'DeepSeek V3.2',
    dialect: { calls: 'deepseek_v32' },
    text: 'So.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">\n<｜DSML｜parameter name="city" string="true">2</｜DSML｜parameter>\n<｜DSML｜parameter name="free" string="false">{"a": [1]}</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name="now">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
    content: 'So.',
    calls: [{ name: 'get_weather', arguments: { city: '2', free: { a: [1] } } }, NOW],
  },
  {
    title: 'DeepSeek V4',
    dialect: { calls: 'deepseek_v4' },
    text: '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="now">\n\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>',
    calls: [NOW],
  },
  {
    title: 'Kimi K2',
    dialect: { calls: 'kimi_k2' },
    text: 'So.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Paris", "days": 2}<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>',
    content: 'So.',
    calls: [PARIS, NOW],
  },
  {
    title: 'Command A',
    dialect: { calls: 'cohere', reasoning: 'cohere' },
    text: '<|START_THINKING|>Hm.<|END_THINKING|><|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Paris", "days": 2}},\n    {"tool_call_id": "1", "tool_name": "now", "parameters": {}}\n]<|END_ACTION|>',
    reasoning: 'Hm.',
    calls: [PARIS, NOW],
  },
  {
    title: 'Apertus',
    dialect: { calls: 'apertus', reasoning: 'apertus' },
    text: '<|inner_prefix|>Hm.<|inner_suffix|>So.<|tools_prefix|>[{"get_weather": {"city": "Paris", "days": 2}}, {"now": {}}]<|tools_suffix|>',
    reasoning: 'Hm.',
    content: 'So.',
    calls: [PARIS, NOW],
  },
  {
    title: 'LFM2',
    dialect: { calls: 'lfm2' },
    text: "<|tool_call_start|>[get_weather(city='Paris', days=2), now()]<|tool_call_end|>So.",
    content: 'So.',
    calls: [PARIS, NOW],
  },
  {
    title: 'OLMo 3',
    dialect: { calls: 'olmo3' },
    text: 'So.\n<function_calls>\nget_weather(city="Paris", days=2)\nnow()\n</function_calls>',
    content: 'So.',
    calls: [PARIS, NOW],
  },
  {
    title: 'Nemotron Nano 2',
    dialect: { calls: 'nemotron' },
    text: `<TOOLCALL>[${JSON_PARIS}, ${JSON_NOW}]</TOOLCALL>`,
    calls: [PARIS, NOW],
  },
  {
    title: 'Jamba, Hunyuan and Apriel',
    dialect: { calls: 'jamba' },
    text: `So.\n<tool_calls>[\n${JSON_PARIS},\n${JSON_NOW}\n]</tool_calls>`,
    content: 'So.',
    calls: [PARIS, NOW],
  },
  {
    title: 'GigaChat 3.1',
    dialect: { calls: 'gigachat3' },
    text: `So.<|function_call|>${JSON_PARIS}`,
    content: 'So.',
    calls: [PARIS],
  },
  {
    title: 'gpt-oss',
    dialect: { calls: 'harmony', reasoning: 'harmony' },
    text: '<|channel|>analysis<|message|>Need it.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris", "days": 2}',
    reasoning: 'Need it.',
    calls: [PARIS],
  },
  {
    title: 'gpt-oss with the recipient first',
    dialect: { calls: 'harmony', reasoning: 'harmony' },
    text: ' to=functions.now<|channel|>commentary json<|message|>{}<|call|>',
    calls: [NOW],
  },
]
