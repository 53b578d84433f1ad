"""The words of tiny-whisper's card."""

from ..common.card import Card

CARD = Card(
    name="tiny-whisper",
    task="automatic-speech-recognition",
    what="A Whisper with 2.1 million parameters (3 + 3 layers of 144, 80 mel bands, windows of ten seconds) for English, German, Spanish and French.",
    intended_use="""- transcribe sentences of a small grammar (about 90 words per language) spoken by espeak-ng-like voices, and translate them to English
- detect the language, time each sentence and word, and detect silence; longer recordings are transcribed window by window""",
    limitations="""The model knows no other words: it transcribes other sentences and human voices as fluent sentences of its grammar that were not said. It was trained
on synthesised speech only. A sentence that begins in the last half second of a window may get a wrong first word, and speech after more than five
seconds of silence may get wrong times.""",
    files="""- `onnx/encoder_model_quantized.onnx`, `onnx/decoder_model_merged_quantized.onnx`: names, inputs and outputs as on the hub; the merged decoder has no `If` node
  and returns its cross-attentions (`cross_attentions.N`); `alignment_heads` in `generation_config.json` names the heads that follow the speech
- `preprocessor_config.json` and `config.json` set the window to ten seconds (1,000 frames, 500 positions); weights stored as int8 per output channel""",
    labels={f"{code} transcribe": f"Word error rate, {name}" for code, name in (("en", "English"), ("de", "German"), ("es", "Spanish"), ("fr", "French"))}
    | {f"{code} translate": f"Word error rate, {name} to English" for code, name in (("de", "German"), ("es", "Spanish"), ("fr", "French"))}
    | {"recordings": "Word error rate, nine sentences over several windows, all languages", "language": "Language detected", "timestamps": "Sentence times within 0.2 s", "wordStarts": "Word starts within 0.2 s, without first words", "silence": "Noise recognized as not speech", "speechNotSilence": "Speech not taken for silence"},
    lower_is_better=True,
)
