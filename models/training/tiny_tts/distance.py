"""How far two recordings of a sentence are from each other, whatever their pace: mel-cepstral distortion."""

import numpy as np
from scipy.fft import dct
from transformers.audio_utils import mel_filter_bank

from ..tiny_whisper.voices import RATE

WINDOW, STEP, BANDS, CEPSTRA = 512, 160, 40, 13
FLOOR_DECIBELS = -60.0  # below the loudest band of a recording
_FILTERS = mel_filter_bank(WINDOW // 2 + 1, BANDS, 0.0, RATE / 2, RATE, norm=None, mel_scale="slaney").astype(np.float32)


def log_mel(wave: np.ndarray) -> np.ndarray:
    """[frames, bands] in decibels below the loudest."""
    frames = np.lib.stride_tricks.sliding_window_view(np.pad(wave, WINDOW // 2), WINDOW)[::STEP]
    power = np.abs(np.fft.rfft(frames * np.hanning(WINDOW))) ** 2 @ _FILTERS
    decibels = 10 * np.log10(power + 1e-12)
    return np.maximum(decibels - decibels.max(), FLOOR_DECIBELS)


def _path(costs: np.ndarray) -> list[tuple[int, int]]:
    """The cheapest monotonic path from the first pair of frames to the last."""
    rows, columns = costs.shape
    total = np.full((rows + 1, columns + 1), np.inf)
    total[0, 0] = 0
    for row in range(rows):
        line, above = total[row + 1], total[row]
        for column in range(columns):
            line[column + 1] = costs[row, column] + min(above[column], above[column + 1], line[column])
    row, column, path = rows, columns, []
    while row > 0 and column > 0:
        path.append((row - 1, column - 1))
        row, column = min(((row - 1, column - 1), (row - 1, column), (row, column - 1)), key=lambda place: total[place])
    return path


def distortion(one: np.ndarray, other: np.ndarray) -> float:
    """Mean decibels over the path; the first cepstrum, which is the loudness, does not count."""
    a, b = (dct(log_mel(wave), norm="ortho")[:, 1 : CEPSTRA + 1] for wave in (one, other))
    costs = np.sqrt(np.square(a[:, None] - b[None]).sum(2) * 2 / BANDS)
    return float(np.mean([costs[place] for place in _path(costs)]))
