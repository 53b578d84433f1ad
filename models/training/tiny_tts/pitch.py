"""The fundamental frequency of a wave by autocorrelation; the reference voices have no noise that could mislead it."""

import numpy as np
from scipy.ndimage import median_filter

from ..tiny_whisper.voices import RATE
from .reference import HOP

WINDOW, SIZE = 800, 2048
LOWEST, HIGHEST = 65.0, 400.0
VOICED = 0.6


def track(wave: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Hertz and whether voiced, frame by frame; between voiced frames the pitch is interpolated."""
    half = (WINDOW - HOP) // 2
    padded = np.pad(wave, (half, half))
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP].astype(np.float64)
    window = np.hanning(WINDOW)
    spectrum = np.abs(np.fft.rfft((frames - frames.mean(1, keepdims=True)) * window, SIZE)) ** 2
    shape = np.fft.irfft(np.abs(np.fft.rfft(window, SIZE)) ** 2)
    lags = np.arange(int(RATE / HIGHEST), int(RATE / LOWEST) + 1)
    correlation = np.fft.irfft(spectrum)
    reach = lags[-1] + 2
    likeness = correlation[:, :reach] / (correlation[:, :1] + 1e-4) / (shape[:reach] / shape[0])
    scores = likeness[:, lags] - 0.02 * np.log2(lags / lags[0])  # of two equal lags the shorter
    best = lags[scores.argmax(1)]
    rows = np.arange(len(best))
    left, middle, right = (likeness[rows, best + step] for step in (-1, 0, 1))
    bend = left - 2 * middle + right
    exact = best + np.where(np.abs(bend) > 1e-9, 0.5 * (left - right) / np.where(np.abs(bend) > 1e-9, bend, 1), 0).clip(-0.5, 0.5)
    voiced = middle > VOICED
    hertz = median_filter(RATE / exact, 5)
    if not voiced.any():
        return np.full(len(best), 120.0, np.float32), voiced
    return np.interp(rows, rows[voiced], hertz[voiced]).astype(np.float32), voiced
