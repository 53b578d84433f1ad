"""The words of tiny-tts's card."""

from ..common.card import Card

CARD = Card(
    name="tiny-tts",
    task="text-to-speech",
    what="""A synthesizer with 1.5 million parameters and two voices (`female`, `male`) at 16 kHz, in the layout of a Piper voice that reads letters and needs no phonemes.
Convolutions over letters predict the duration of each letter. Convolutions over frames of 12.5 ms predict the pitch and two spectral envelopes, one for the voiced part and one for the
noise. The vocoder in the same graph shapes pulses and noise with them. The model is not autoregressive and reads its noise from a table, so a text always sounds the same.""",
    intended_use="""- speak the sentences of tiny-whisper's grammar (about 90 words per language) in English, German, Spanish and French; the letters of a sentence determine its language
- speak at any speed: `length_scale` stretches the letters and keeps the pitch

The voices are those of espeak-ng (its standard voice and the variant `f2`, 160 words a minute). The table also has the word error rate of espeak-ng itself, because
a copy cannot be expected to be understood better than its original. The second measure does not depend on tiny-whisper: mel-cepstral distortion (13 cepstra, frames paired by dynamic time warping) between
tiny-tts and the reference voice, compared with the distortion between the two reference voices.""",
    limitations="""**Other words are guessed.** The model learned the sound of letters from some 360 words in four languages and pronounces others by analogy, often wrongly. It skips digits
and symbols. A sentence of words that several languages share may be spoken in the wrong one. The voices sound as mechanical as those of espeak-ng.""",
    files="""- `onnx/model_quantized.onnx`: inputs `input`, `input_lengths`, `scales` (noise, length, unused) and `sid`; weights stored as int8 per output channel, the matrices of the
  Fourier transform are computed when the file is loaded
- `onnx/model_quantized.onnx.json`: letters, speakers and rate, as Piper writes them""",
    labels={
        "en": "Word error rate by tiny-whisper, English", "de": "Word error rate by tiny-whisper, German", "es": "Word error rate by tiny-whisper, Spanish",
        "fr": "Word error rate by tiny-whisper, French", "distance": "Distortion from the reference voice ÷ distortion between the two reference voices",
        "enReference": "Word error rate of espeak-ng itself, English", "deReference": "of espeak-ng itself, German", "esReference": "of espeak-ng itself, Spanish",
        "frReference": "of espeak-ng itself, French", "distortion": "Mel-cepstral distortion from the reference voice, dB", "apart": "between the two reference voices, dB",
        "nearest": "Nearer to its reference voice than to the other", "length": "Difference in length, as a share", "cents": "Difference in mean pitch, cents (median)",
        "sentencesPerLanguage": "Sentences of each language, each in both voices",
    },
    lower_is_better=True,
)
