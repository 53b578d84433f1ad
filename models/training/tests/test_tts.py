"""Letters are divided among phonemes, and the exported vocoder computes what the trained one does."""

import unittest

import torch

from ..tiny_tts.export import ProductVocoder, piper_ids
from ..tiny_tts.letters import learn_divisions, spelled
from ..tiny_tts.vocoder import NOISE_BANDS, TONE_BANDS, Vocoder


class Letters(unittest.TestCase):
    """Of texts and words."""

    def test_reads_as_the_server(self) -> None:
        self.assertEqual(spelled("Tür 7!"), "tu\u0308r !")
        self.assertEqual(piper_ids("a"), [1, 0, 4, 0, 2])

    def test_divides_alike(self) -> None:
        pairs = {("see", ("s", "i:")), ("sea", ("s", "i:")), ("tea", ("t", "i:")), ("tee", ("t", "i:")), ("as", ("a", "s")), ("at", ("a", "t"))}
        self.assertEqual(learn_divisions(pairs).divide("seat", ("s", "i:", "t"))[0::3], [1, 1])


class Products(unittest.TestCase):
    """Instead of Fourier transforms."""

    def test_make_the_same_wave(self) -> None:
        torch.manual_seed(1)
        hertz, tone, hiss = 100 + 80 * torch.rand(1, 12), torch.randn(1, 12, len(TONE_BANDS)), torch.randn(1, 12, len(NOISE_BANDS))
        torch.testing.assert_close(ProductVocoder()(hertz, tone, hiss), Vocoder()(hertz, tone, hiss), atol=1e-3, rtol=1e-3)

    def test_flat_responses_change_nothing(self) -> None:
        vocoder, source = Vocoder(), torch.randn(1, 4000)
        inner = slice(200, -200)
        torch.testing.assert_close(vocoder.together(*vocoder.spectra(source))[:, inner], source[:, inner], atol=1e-4, rtol=1e-4)


if __name__ == "__main__":
    unittest.main()
