"""Records noise scheduler steps of diffusers for test/golden/noise-schedulers.test.ts.

    python make-noise-schedulers.py > noise-schedulers.json      (diffusers 0.42.1, torch 2.13)
"""

import itertools
import json

import diffusers.schedulers.scheduling_euler_ancestral_discrete as ancestral_module
import diffusers.schedulers.scheduling_lcm as lcm_module
import numpy as np
import torch
from diffusers import (
    DDIMScheduler,
    DPMSolverMultistepScheduler,
    EulerAncestralDiscreteScheduler,
    EulerDiscreteScheduler,
    LCMScheduler,
    PNDMScheduler,
)

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
    for timestep in scheduler.timesteps:
        scaled = scheduler.scale_model_input(latents, timestep)
        prediction, noise, clean = draw(), draw(), draw()
        noised = scheduler.add_noise(clean, noise, timestep.reshape(1))
        # Those that draw noise themselves get the recorded one.
        lcm_module.randn_tensor = ancestral_module.randn_tensor = lambda *_args, **_kwargs: noise
        latents = scheduler.step(prediction, timestep, latents).prev_sample
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


print(json.dumps(cases()))
