/** A client, the packages that it is installed from, and the script that uses its features. */
export interface ClientUnderTest {
  /** As it stands in docs/clients.md, and as it is chosen on the command line. */
  readonly name: string
  /** Names with exact versions; the first is the client. */
  readonly packages: readonly string[]
  /** Below `test/clients`; its ending says whether pip or npm installs the packages. */
  readonly script: string
}

const python = (name: string, script: string, ...packages: string[]): ClientUnderTest => ({
  name,
  packages,
  script: `python/${script}.py`,
})
const javascript = (name: string, script: string, ...packages: string[]): ClientUnderTest => ({
  name,
  packages,
  script: `javascript/${script}.mjs`,
})

const OPENAI = 'openai==3.57.0'
const LANGCHAIN = [
  'langchain==1.5.2',
  'langchain-openai==1.7.4',
  'langchain-anthropic==1.7.10',
  'langchain-cohere==0.6.0',
]
const TEI = [
  'llama-index-embeddings-text-embeddings-inference==0.6.0',
  'llama-index-postprocessor-tei-rerank==0.6.0',
]
const LANGCHAIN_JS = [
  'langchain@1.5.14',
  '@langchain/core@1.4.0',
  '@langchain/openai@1.6.0',
  '@langchain/anthropic@1.5.11',
  '@langchain/langgraph@1.7.3',
]
const AI_SDK_7 = ['@ai-sdk/openai@4.0.118', '@ai-sdk/openai-compatible@3.0.92']
const AI_SDK_6 = ['@ai-sdk/openai@3.0.141', '@ai-sdk/openai-compatible@2.0.92']
const AI_SDK_5 = ['@ai-sdk/openai@2.0.130', '@ai-sdk/openai-compatible@1.0.61']
const LLAMA_INDEX = [
  'llama-index-llms-openai-like==0.8.1',
  'llama-index-embeddings-openai-like==0.4.0',
  'llama-index-embeddings-cohere==0.9.0',
  ...TEI,
]
const ZOD = 'zod@4.6.7'
const aiSdk = (name: string, ...packages: string[]): ClientUnderTest =>
  javascript(name, 'ai_sdk_client', ...packages, ZOD)

/** The rows of the table in docs/clients.md. */
export const CLIENTS: readonly ClientUnderTest[] = [
  python('openai-python', 'openai_client', OPENAI),
  python('openai-python-1', 'openai_client', 'openai==1.109.1'),
  python('openai-python-0', 'openai_0', 'openai==0.28.1', 'numpy==2.4.6'),
  javascript('openai-js', 'openai_client', 'openai@7.59.0'),
  javascript('openai-js-4', 'openai_client', 'openai@4.104.0'),
  javascript('openai-js-3', 'openai_3', 'openai@3.3.0'),
  python('anthropic-python', 'anthropic_client', 'anthropic==2.14.0'),
  javascript('anthropic-js', 'anthropic_client', '@anthropic-ai/sdk@1.14.0'),
  python('cohere-python', 'cohere_client', 'cohere==7.3.1'),
  javascript('cohere-js', 'cohere_client', 'cohere-ai@8.1.0'),
  python('voyage', 'voyage_client', 'voyageai==0.5.0'),
  python('langchain-python', 'langchain_client', ...LANGCHAIN),
  javascript('langchain-js', 'langchain_client', ...LANGCHAIN_JS, ZOD),
  python('langgraph', 'langgraph_client', 'langgraph==1.2.24', ...LANGCHAIN),
  python('llama-index', 'llama_index_client', 'llama-index-core==0.14.25', ...LLAMA_INDEX),
  python('pydantic-ai', 'pydantic_ai_client', 'pydantic-ai-slim[openai,anthropic]==2.68.0'),
  python('instructor', 'instructor_client', 'instructor==1.17.0', 'openai==3.3.0'),
  python('litellm', 'litellm_client', 'litellm==1.110.2'),
  python('litellm-proxy', 'litellm_proxy', 'litellm[proxy]==1.108.7', 'anthropic==2.14.0'),
  python('haystack', 'haystack_client', 'haystack-ai==3.4.1'),
  python('openai-agents-python', 'openai_agents_client', 'openai-agents==0.24.0'),
  javascript('openai-agents-js', 'openai_agents_client', '@openai/agents@0.20.0', ZOD),
  python('semantic-kernel', 'semantic_kernel_client', 'semantic-kernel==1.45.0'),
  python('autogen', 'autogen_client', 'autogen-agentchat==0.7.5', 'autogen-ext[openai]==0.7.5'),
  python('dspy', 'dspy_client', 'dspy==3.4.1', 'numpy==2.4.6'),
  python('outlines', 'outlines_client', 'outlines[openai]==1.3.3'),
  python('guidance', 'guidance_client', 'guidance==0.3.1', OPENAI),
  python('huggingface-hub', 'huggingface_client', 'huggingface_hub==2.4.0', 'numpy==2.4.6'),
  python('llm', 'llm_client', 'llm==0.36'),
  python('open-webui', 'open_webui_client', 'open-webui==0.12.4'),
  python('aider', 'aider_client', 'aider-chat==0.86.2'),
  python('smolagents', 'smolagents_client', 'smolagents[openai]==1.26.0'),
  python('crewai', 'crewai_client', 'crewai==1.15.30'),
  python('mem0', 'mem0_client', 'mem0ai==2.2.1', 'qdrant-client==1.20.0'),
  python('strands', 'strands_client', 'strands-agents[openai,anthropic]==1.62.0'),
  python('agno', 'agno_client', 'agno==3.1.10', OPENAI, 'anthropic==2.14.0', 'cohere==7.3.1'),
  python('google-adk', 'google_adk_client', 'google-adk==2.13.0', 'litellm==1.110.2'),
  python('agent-framework', 'agent_framework_client', 'agent-framework-openai==1.17.0'),
  aiSdk('ai-sdk', 'ai@7.0.173', ...AI_SDK_7, '@ai-sdk/anthropic@4.0.105'),
  aiSdk('ai-sdk-6', 'ai@6.0.326', ...AI_SDK_6, '@ai-sdk/anthropic@3.0.140'),
  aiSdk('ai-sdk-5', 'ai@5.0.277', ...AI_SDK_5, '@ai-sdk/anthropic@2.0.112'),
]
