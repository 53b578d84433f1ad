/** A family of chat models: its template in the form that is published, and its control tokens. */
export interface ChatFamily {
  readonly name: string
  readonly template: string
  readonly special: readonly string[]
  /** Added tokens that no file marks as special. */
  readonly tags?: readonly string[]
  /** Added tokens that are ordinary text. */
  readonly words?: readonly string[]
  /** Variables that the template does not know. */
  readonly lacks?: readonly 'tools'[]
}

const CHATML_TOOLS =
  "{%- if tools %}{{- '<|im_start|>system\\n' }}{%- if messages[0]['role'] == 'system' %}" +
  "{{- messages[0]['content'] }}{%- endif %}{{- '\\n# Tools\\n<tools>' }}{%- for tool in tools %}" +
  "{{- '\\n' }}{{- tool | tojson }}{%- endfor %}{{- '\\n</tools><|im_end|>\\n' }}{%- elif " +
  "messages[0]['role'] == 'system' %}{{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}{%- endif %}"

/**
 * Ten families, whose published templates differ in how they put roles, contents and tools
 * together.
 */
export const FAMILIES: readonly ChatFamily[] = [
  {
    name: 'Qwen 2.5 and 3 (ChatML with tools and thoughts)',
    special: ['<|endoftext|>', '<|im_start|>', '<|im_end|>'],
    tags: [
      '<tool_call>',
      '</tool_call>',
      '<tool_response>',
      '</tool_response>',
      '<think>',
      '</think>',
    ],
    template:
      CHATML_TOOLS +
      "{%- for message in messages %}{%- if message.content is string %}{%- set content = message.content %}{%- else %}{%- set content = '' %}{%- endif %}" +
      "{%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}" +
      "{{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}" +
      "{%- elif message.role == 'assistant' %}{%- set reasoning = '' %}" +
      "{%- if '</think>' in content %}{%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}" +
      "{%- set content = content.split('</think>')[-1].lstrip('\\n') %}{%- endif %}" +
      "{{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}" +
      '{%- if message.tool_calls %}{%- for tool_call in message.tool_calls %}{%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}' +
      `{{- '\\n<tool_call>\\n{"name": "' }}{{- tool_call.name }}{{- '", "arguments": ' }}{{- tool_call.arguments | tojson }}{{- '}\\n</tool_call>' }}{%- endfor %}{%- endif %}` +
      "{{- '<|im_end|>\\n' }}{%- elif message.role == 'tool' %}{{- '<|im_start|>user\\n<tool_response>\\n' }}{{- content }}{{- '\\n</tool_response><|im_end|>\\n' }}{%- endif %}{%- endfor %}" +
      "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}",
  },
  {
    name: 'Qwen 3 Coder (tools as XML, names within tags)',
    special: ['<|endoftext|>', '<|im_start|>', '<|im_end|>'],
    tags: ['<tool_call>', '</tool_call>', '<think>', '</think>'],
    template:
      "{%- macro extra(object) %}{%- for key in object %}{{- '\\n<' ~ key ~ '>' ~ (object[key] | tojson) ~ '</' ~ key ~ '>' }}{%- endfor %}{%- endmacro %}" +
      "{%- if tools %}{{- '<|im_start|>system\\n<tools>' }}{%- for tool in tools %}{%- set tool = tool.function %}" +
      "{{- '\\n<function>\\n<name>' ~ tool.name ~ '</name>' }}{%- if tool.description is defined %}{{- '\\n<description>' ~ (tool.description | trim) ~ '</description>' }}{%- endif %}" +
      "{{- extra(tool.parameters) }}{{- '\\n</function>' }}{%- endfor %}{{- '</tools><|im_end|>\\n' }}{%- endif %}" +
      "{%- for message in messages %}{{- '<|im_start|>' + message.role }}{%- if message.content is string and message.content | trim | length > 0 %}{{- '\\n' + message.content | trim + '\\n' }}{%- endif %}" +
      "{%- for call in message.tool_calls or [] %}{{- '<tool_call>\\n<function=' + call.function.name + '>\\n' }}{%- for name, value in call.function.arguments | items %}{{- '<parameter=' + name + '>\\n' }}{{- value }}{{- '\\n</parameter>\\n' }}{%- endfor %}{{- '</function>\\n</tool_call>' }}{%- endfor %}" +
      "{{- '<|im_end|>\\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}",
  },
  {
    name: 'Llama 3',
    special: [
      '<|begin_of_text|>',
      '<|start_header_id|>',
      '<|end_header_id|>',
      '<|eot_id|>',
      '<|python_tag|>',
    ],
    template:
      "{{- bos_token }}{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content'] | trim %}{%- set messages = messages[1:] %}{%- else %}{%- set system_message = '' %}{%- endif %}" +
      "{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}{{- system_message }}{%- for t in tools or [] %}{{- t | tojson(indent=4) }}{{- '\\n\\n' }}{%- endfor %}{{- '<|eot_id|>' }}" +
      "{%- for message in messages %}{%- if message.role == 'tool' %}{{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' }}{{- message.content | tojson }}{{- '<|eot_id|>' }}" +
      "{%- elif message.tool_calls %}{%- set tool_call = message.tool_calls[0].function %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}" +
      "{{- '<|python_tag|>' + tool_call.name + '.call(' }}{%- for arg_name, arg_val in tool_call.arguments | items %}{{- arg_name + '=\"' + arg_val + '\"' }}{%- endfor %}{{- ')<|eot_id|>' }}" +
      "{%- else %}{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}{%- endif %}{%- endfor %}" +
      "{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}",
  },
  {
    name: 'Mistral',
    special: [
      '<s>',
      '</s>',
      '[INST]',
      '[/INST]',
      '[AVAILABLE_TOOLS]',
      '[/AVAILABLE_TOOLS]',
      '[TOOL_CALLS]',
      '[TOOL_RESULTS]',
      '[/TOOL_RESULTS]',
    ],
    template:
      "{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content'] %}{%- set loop_messages = messages[1:] %}{%- else %}{%- set loop_messages = messages %}{%- endif %}{{- bos_token }}" +
      "{%- for message in loop_messages %}{%- if message['role'] == 'user' %}{%- if tools is not none %}{{- '[AVAILABLE_TOOLS] [' }}{%- for tool in tools %}{{- '{\"type\": \"function\", \"function\": ' + tool.function | tojson + '}' }}{%- endfor %}{{- '][/AVAILABLE_TOOLS]' }}{%- endif %}" +
      "{%- if loop.last and system_message is defined %}{{- '[INST] ' + system_message + '\\n\\n' + message['content'] + '[/INST]' }}{%- else %}{{- '[INST] ' + message['content'] + '[/INST]' }}{%- endif %}" +
      "{%- elif message.tool_calls is defined %}{{- '[TOOL_CALLS] [' }}{%- for tool_call in message.tool_calls %}{%- set out = tool_call.function | tojson %}{{- out[:-1] }}{{- ', \"id\": \"' + tool_call.id + '\"}' }}{%- endfor %}{{- ']' + eos_token }}" +
      "{%- elif message['role'] == 'assistant' %}{{- ' ' + message['content'] | trim + eos_token }}{%- elif message['role'] == 'tool' %}{{- '[TOOL_RESULTS] {\"content\": ' + message.content | string + ', \"call_id\": \"' + message.tool_call_id + '\"}[/TOOL_RESULTS]' }}{%- endif %}{%- endfor %}",
  },
  {
    name: 'Gemma',
    special: ['<bos>', '<eos>', '<start_of_turn>', '<end_of_turn>'],
    words: ['<table>', '</h1>', '\n\n\n'],
    lacks: ['tools'],
    template:
      "{{ bos_token }}{%- if messages[0]['role'] == 'system' -%}{%- set first_user_prefix = messages[0]['content'] + '\\n\\n' -%}{%- set loop_messages = messages[1:] -%}{%- else -%}{%- set first_user_prefix = '' -%}{%- set loop_messages = messages -%}{%- endif -%}" +
      "{%- for message in loop_messages -%}{%- if message['role'] == 'assistant' -%}{%- set role = 'model' -%}{%- else -%}{%- set role = message['role'] -%}{%- endif -%}" +
      "{{ '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else '') }}{{ message['content'] | trim }}{{ '<end_of_turn>\\n' }}{%- endfor -%}{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}",
  },
  {
    name: 'Phi 3 and 4 (tokens put together from the role)',
    special: [
      '<|endoftext|>',
      '<|system|>',
      '<|user|>',
      '<|assistant|>',
      '<|tool|>',
      '<|/tool|>',
      '<|end|>',
    ],
    template:
      "{% for message in messages %}{% if message['role'] == 'system' and tools %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|tool|>' + (tools | tojson) + '<|/tool|>' + '<|end|>' }}" +
      "{% else %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% else %}{{ eos_token }}{% endif %}",
  },
  {
    name: 'DeepSeek',
    special: [
      '<｜begin▁of▁sentence｜>',
      '<｜end▁of▁sentence｜>',
      '<｜User｜>',
      '<｜Assistant｜>',
      '<｜tool▁outputs▁begin｜>',
      '<｜tool▁outputs▁end｜>',
    ],
    tags: ['<think>', '</think>'],
    lacks: ['tools'],
    template:
      "{% set ns = namespace(system_prompt='') %}{%- for message in messages %}{%- if message['role'] == 'system' %}{% set ns.system_prompt = ns.system_prompt + message['content'] %}{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system_prompt }}" +
      "{%- for message in messages %}{%- if message['role'] == 'user' %}{{ '<｜User｜>' + message['content'] }}{%- endif %}{%- if message['role'] == 'assistant' %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{ '<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>' }}{%- endif %}" +
      "{%- if message['role'] == 'tool' %}{{ '<｜tool▁outputs▁begin｜>' + message['content'] + '<｜tool▁outputs▁end｜>' }}{%- endif %}{%- endfor %}{% if add_generation_prompt %}{{ '<｜Assistant｜><think>\\n' }}{% endif %}",
  },
  {
    name: 'Granite',
    special: ['<|end_of_text|>', '<|start_of_role|>', '<|end_of_role|>', '<|tool_call|>'],
    template:
      "{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content'] %}{%- set loop_messages = messages[1:] %}{%- else %}{%- set system_message = 'You are Granite.' %}{%- set loop_messages = messages %}{%- endif %}" +
      "{{- '<|start_of_role|>system<|end_of_role|>' + system_message + '<|end_of_text|>\\n' }}{%- if tools %}{{- '<|start_of_role|>tools<|end_of_role|>' }}{{- tools | tojson(indent=4) }}{{- '<|end_of_text|>\\n' }}{%- endif %}" +
      "{%- for message in loop_messages %}{%- if message['role'] == 'tool' %}{{- '<|start_of_role|>tool_response<|end_of_role|>' + message['content'] + '<|end_of_text|>\\n' }}{%- else %}{{- '<|start_of_role|>' + message['role'] + '<|end_of_role|>' + message['content'] }}{%- for call in message.tool_calls or [] %}{{- '<|tool_call|>' + call.function | tojson }}{%- endfor %}{{- '<|end_of_text|>\\n' }}{%- endif %}{%- endfor %}" +
      "{%- if add_generation_prompt %}{{- '<|start_of_role|>assistant<|end_of_role|>' }}{%- endif %}",
  },
  {
    name: 'SmolLM2 (plain ChatML)',
    special: ['<|endoftext|>', '<|im_start|>', '<|im_end|>'],
    template:
      "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nYou are a helpful AI assistant<|im_end|>\\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
  },
  {
    name: 'Zephyr and OLMo',
    special: ['<s>', '</s>', '<|user|>', '<|assistant|>', '<|system|>', '<|endoftext|>'],
    lacks: ['tools'],
    template:
      "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'system' %}\n{{ '<|system|>\\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\\n'  + message['content'] + eos_token }}\n{% endif %}\n{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}",
  },
  {
    name: 'Command-R (blocks and filters around whole turns)',
    special: [
      '<BOS_TOKEN>',
      '<|START_OF_TURN_TOKEN|>',
      '<|END_OF_TURN_TOKEN|>',
      '<|USER_TOKEN|>',
      '<|CHATBOT_TOKEN|>',
      '<|SYSTEM_TOKEN|>',
    ],
    template:
      "{%- macro turn(token, text) %}{{ '<|START_OF_TURN_TOKEN|>' + token + text.strip() + '<|END_OF_TURN_TOKEN|>' }}{% endmacro %}{{ bos_token }}" +
      '{%- set preamble %}{% for tool in tools or [] %}\n{{ tool.function.name }}: {{ tool.function.description }}\n{% for key, value in (tool.function.parameters.properties or {}).items() %}{{ key }} ({{ value.type }}){% endfor %}{% endfor %}{% endset %}' +
      "{% if tools %}{{ turn('<|SYSTEM_TOKEN|>', preamble | trim) }}{% endif %}{% for message in messages %}{% if message.role == 'user' %}{{ turn('<|USER_TOKEN|>', message.content) }}" +
      "{% elif message.role == 'assistant' %}{{ turn('<|CHATBOT_TOKEN|>', message.content) }}{% else %}{% filter trim %}\n{{ turn('<|SYSTEM_TOKEN|>', message.content) }}\n{% endfilter %}{% endif %}{% endfor %}" +
      "{% if add_generation_prompt %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% endif %}",
  },
]
