"""Records noise scheduler steps of diffusers for test/golden/noise-schedulers.test.ts.

    python make-noise-schedulers.py > noise-schedulers.json      (diffusers 0.42.1, torch 2.13, torchsde 0.2.6)
"""

import importlib
import itertools
import json
from collections.abc import Callable

import numpy as np
import torch
from diffusers import (
    DDIMScheduler,
    DDPMScheduler,
    DEISMultistepScheduler,
    DPMSolverMultistepScheduler,
    DPMSolverSDEScheduler,
    EulerAncestralDiscreteScheduler,
    EulerDiscreteScheduler,
    HeunDiscreteScheduler,
    KDPM2AncestralDiscreteScheduler,
    KDPM2DiscreteScheduler,
    LCMScheduler,
    LMSDiscreteScheduler,
    PNDMScheduler,
    TCDScheduler,
    UniPCMultistepScheduler,
)
from diffusers.schedulers.scheduling_dpmsolver_sde import BrownianTreeNoiseSampler

VALUES = 4
random = np.random.default_rng(0)


def draw() -> torch.Tensor:
    return torch.tensor(random.standard_normal(VALUES), dtype=torch.float32)


def record(scheduler_class: type, steps: int, config: dict) -> dict:
    scheduler = scheduler_class(**config)
    scheduler.set_timesteps(steps)
    latents = draw() * float(scheduler.init_noise_sigma)
    case = {
        "config": {**config, "_class_name": scheduler_class.__name__},
        "steps": steps,
        "timesteps": [float(t) for t in scheduler.timesteps],
        "initNoiseSigma": float(scheduler.init_noise_sigma),
        "start": latents.tolist(),
        "moves": [],
    }
    brownian = brownian_noise(scheduler) if scheduler_class is DPMSolverSDEScheduler else None
    for timestep in scheduler.timesteps:
        scaled = scheduler.scale_model_input(latents, timestep)
        prediction, noise, clean = draw(), draw(), draw()
        if brownian:
            noise = brownian(len(case["moves"]))
        noised = scheduler.add_noise(clean, noise, timestep.reshape(1))
        # Those that draw noise themselves get the recorded one.
        importlib.import_module(scheduler_class.__module__).randn_tensor = lambda *_args, **_kwargs: noise[None, :, None]
        # Some solvers take their sums over a batch of images with channels.
        latents = scheduler.step(prediction[None, :, None], timestep, latents[None, :, None]).prev_sample[0, :, 0]
        case["moves"].append(
            {
                "scaled": scaled.tolist(),
                "prediction": prediction.tolist(),
                "noise": noise.tolist(),
                "next": latents.tolist(),
                "clean": clean.tolist(),
                "noised": noised.tolist(),
            }
        )
    return case


def brownian_noise(scheduler: DPMSolverSDEScheduler) -> Callable[[int], torch.Tensor]:
    """Gives the scheduler a Brownian tree, and returns the noise between the levels of a run and of the next one."""
    # With the scheduler's rounding: noise grows with the root of a distance, so a millionth counts.
    times = torch.cat([scheduler.sigmas[:1], scheduler.sigmas[1:-1:2]]).log().neg()
    levels = [t.neg().exp() for a, b in itertools.pairwise(times) for t in (a, a + (b - a) * 0.5)] + [times[-1].neg().exp()]
    scheduler.noise_sampler = BrownianTreeNoiseSampler(torch.zeros(1, VALUES, 1), float(scheduler.sigmas[scheduler.sigmas > 0].min()), float(scheduler.sigmas.max()), 7)

    def between(run: int) -> torch.Tensor:
        # The last run ends without noise.
        return scheduler.noise_sampler(levels[run], levels[run + 1])[0, :, 0] if run + 1 < len(levels) else torch.zeros(VALUES)

    return between


def cases() -> list[dict]:
    found = []
    for scheduler_class, steps in ((DDIMScheduler, 5), (EulerDiscreteScheduler, 5), (LCMScheduler, 4)):
        is_lcm = scheduler_class is LCMScheduler
        spacings = ("leading",) if is_lcm else ("leading", "trailing", "linspace")
        for prediction, spacing, zero_snr in itertools.product(("epsilon", "v_prediction"), spacings, (False, True)):
            if zero_snr and prediction == "epsilon":
                continue  # At zero SNR the noise says nothing about the picture.
            config = {
                "num_train_timesteps": 1000,
                "beta_start": 0.00085,
                "beta_end": 0.012,
                "beta_schedule": "scaled_linear",
                "prediction_type": prediction,
                "timestep_spacing": spacing,
                "steps_offset": 1 if spacing == "leading" else 0,
                "rescale_betas_zero_snr": zero_snr,
            }
            if scheduler_class is DDIMScheduler:
                config |= {"clip_sample": False, "set_alpha_to_one": False}
            found.append(record(scheduler_class, steps, config))
    found.append(record(DDIMScheduler, 4, {"beta_schedule": "squaredcos_cap_v2", "clip_sample": True}))
    base = {"num_train_timesteps": 1000, "beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
    for prediction, spacing in itertools.product(("epsilon", "v_prediction"), ("leading", "trailing", "linspace")):
        config = base | {"prediction_type": prediction, "timestep_spacing": spacing, "steps_offset": 1 if spacing == "leading" else 0}
        found.append(record(PNDMScheduler, 6, config | {"skip_prk_steps": True}))
        found.append(record(EulerAncestralDiscreteScheduler, 4, config))
        found.append(record(DPMSolverMultistepScheduler, 5, config))
    for config in (
        {"use_karras_sigmas": True},
        {"use_karras_sigmas": True, "final_sigmas_type": "sigma_min"},
        {"final_sigmas_type": "sigma_min", "lower_order_final": False},
        {"final_sigmas_type": "sigma_min", "euler_at_final": True, "prediction_type": "sample"},
        {"solver_order": 1},
        {"rescale_betas_zero_snr": True, "prediction_type": "v_prediction", "timestep_spacing": "trailing"},
    ):
        found.append(record(DPMSolverMultistepScheduler, 6, base | config))
    found.append(record(DPMSolverMultistepScheduler, 16, base | {"final_sigmas_type": "sigma_min"}))
    found.append(record(PNDMScheduler, 1, base | {"skip_prk_steps": True, "set_alpha_to_one": True}))
    return found


def more_cases() -> list[dict]:
    found = []
    base = {"num_train_timesteps": 1000, "beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
    spacings = (("epsilon", "leading"), ("v_prediction", "trailing"), ("epsilon", "linspace"))
    everywhere = (HeunDiscreteScheduler, LMSDiscreteScheduler, KDPM2DiscreteScheduler, KDPM2AncestralDiscreteScheduler, DDPMScheduler, UniPCMultistepScheduler, DEISMultistepScheduler)
    for scheduler_class, (prediction, spacing) in itertools.product(everywhere, spacings):
        offset = 1 if spacing == "leading" else 0
        config = base | {"prediction_type": prediction, "timestep_spacing": spacing, "steps_offset": offset}
        found.append(record(scheduler_class, 6, config))
    curved = (EulerDiscreteScheduler, HeunDiscreteScheduler, LMSDiscreteScheduler, KDPM2DiscreteScheduler, KDPM2AncestralDiscreteScheduler, UniPCMultistepScheduler, DEISMultistepScheduler)
    for scheduler_class in curved:
        found.append(record(scheduler_class, 5, base | {"use_karras_sigmas": True}))
        found.append(record(scheduler_class, 5, base | {"use_exponential_sigmas": True}))
    for scheduler_class in (*curved, DPMSolverMultistepScheduler):
        found.append(record(scheduler_class, 5, base | {"use_beta_sigmas": True}))
    stochastic = {"algorithm_type": "sde-dpmsolver++"}
    for scheduler_class, steps, config in (
        (EulerDiscreteScheduler, 4, {"final_sigmas_type": "sigma_min"}),
        (HeunDiscreteScheduler, 4, {"clip_sample": True, "prediction_type": "sample"}),
        (LMSDiscreteScheduler, 4, {"prediction_type": "sample"}),
        (DDPMScheduler, 4, {"variance_type": "fixed_large", "clip_sample": False}),
        (DDPMScheduler, 4, {"rescale_betas_zero_snr": True, "prediction_type": "v_prediction", "timestep_spacing": "trailing"}),
        (DPMSolverMultistepScheduler, 5, stochastic),
        (DPMSolverMultistepScheduler, 5, stochastic | {"use_karras_sigmas": True}),
        (DPMSolverMultistepScheduler, 5, stochastic | {"final_sigmas_type": "sigma_min", "solver_order": 1}),
        (DPMSolverMultistepScheduler, 5, {"use_exponential_sigmas": True}),
        (UniPCMultistepScheduler, 6, {"solver_order": 3}),
        (UniPCMultistepScheduler, 5, {"solver_order": 1}),
        (UniPCMultistepScheduler, 6, {"solver_type": "bh1", "final_sigmas_type": "sigma_min", "disable_corrector": [1]}),
        (UniPCMultistepScheduler, 5, {"rescale_betas_zero_snr": True, "prediction_type": "v_prediction", "timestep_spacing": "trailing"}),
        (UniPCMultistepScheduler, 5, {"final_sigmas_type": "sigma_min", "lower_order_final": False, "prediction_type": "sample"}),
        (DEISMultistepScheduler, 6, {"solver_order": 3}),
        (DEISMultistepScheduler, 5, {"solver_order": 1, "prediction_type": "sample"}),
        (DEISMultistepScheduler, 16, {"solver_order": 3}),
        (TCDScheduler, 4, {}),
        (TCDScheduler, 2, {"prediction_type": "v_prediction"}),
        (TCDScheduler, 4, {"prediction_type": "sample"}),
    ):
        found.append(record(scheduler_class, steps, base | config))
    for prediction, spacing in spacings:
        config = base | {"prediction_type": prediction, "timestep_spacing": spacing, "steps_offset": 1 if spacing == "leading" else 0}
        found.append(record(DPMSolverSDEScheduler, 6, config))
    for curve in ("karras", "exponential", "beta"):
        found.append(record(DPMSolverSDEScheduler, 5, base | {f"use_{curve}_sigmas": True}))
    return found


print(json.dumps(cases() + more_cases()))
