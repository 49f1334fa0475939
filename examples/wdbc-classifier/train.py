"""train.py: a network with one hidden layer, by stochastic gradient descent over the cases of $train.

After each iteration (once over all cases) the whole state is in checkpoint/state.json. A later attempt goes on from there, and
its model.json is the same, byte for byte, as that of an attempt that was not interrupted: the order of the cases
depends on seed and iteration only, and a number is written so that it is read as the same one.
"""
# SPDX-License-Identifier: Apache-2.0
import hashlib
import json
import os
import sys

import numpy as np

CHECKPOINT = "checkpoint/state.json"
RATE, MOMENTUM, DECAY = 0.01, 0.8, 1e-3
SEED, HIDDEN, ITERATIONS = (int(os.environ[name]) for name in ("seed", "hidden", "iterations"))


def start(features):
    """The state before the first iteration."""
    rng = np.random.default_rng([SEED, 0])
    weights = {"w1": rng.normal(0, features ** -0.5, (HIDDEN, features)), "b1": np.zeros(HIDDEN),
               "w2": rng.normal(0, HIDDEN ** -0.5, HIDDEN), "b2": np.zeros(1)}
    return {"iteration": 0, "weights": weights, "velocity": {k: np.zeros_like(v) for k, v in weights.items()}, "loss": []}


def load(settings, features):
    """The state that an earlier attempt with these settings has left, or a new one."""
    try:
        with open(CHECKPOINT) as f:
            saved = json.load(f)
    except FileNotFoundError:
        return start(features)
    if saved.pop("settings") != settings or saved["iteration"] > ITERATIONS:
        print("the checkpoint is of another training and is not used", file=sys.stderr)
        return start(features)
    for name in ("weights", "velocity"):
        saved[name] = {k: np.array(v) for k, v in saved[name].items()}
    print(f"resumed at iteration {saved['iteration']}", file=sys.stderr)
    return saved


def as_json(state):
    return {**state, **{name: {k: v.tolist() for k, v in state[name].items()} for name in ("weights", "velocity")}}


def save(settings, state):
    """All or nothing: whoever reads sees this state or the one before."""
    with open(CHECKPOINT + ".new", "w") as out:
        json.dump({"settings": settings, **as_json(state)}, out)
        out.flush()
        os.fsync(out.fileno())
    os.replace(CHECKPOINT + ".new", CHECKPOINT)


def iterate(state, cases, labels):
    weights, velocity, loss = state["weights"], state["velocity"], 0.0
    for i in np.random.default_rng([SEED, state["iteration"] + 1]).permutation(len(cases)):
        # No matrix product: the libraries behind it may add in another order with another number of threads.
        hidden = np.tanh((weights["w1"] * cases[i]).sum(axis=1) + weights["b1"])
        output = 1 / (1 + np.exp(-(weights["w2"] * hidden).sum() - weights["b2"][0]))
        loss -= np.log(output if labels[i] else 1 - output)
        error = output - labels[i]
        back = error * weights["w2"] * (1 - hidden ** 2)
        gradients = {"w1": back[:, None] * cases[i] + DECAY * weights["w1"], "b1": back,
                     "w2": error * hidden + DECAY * weights["w2"], "b2": np.array([error])}
        for name, gradient in gradients.items():
            velocity[name] = MOMENTUM * velocity[name] - RATE * gradient
            weights[name] = weights[name] + velocity[name]
    state["loss"].append(float(loss / len(cases)))
    state["iteration"] += 1


def main():
    table = np.loadtxt(os.environ["train"], delimiter=",")
    cases, labels = table[:, :-1], table[:, -1]
    with open(os.environ["train"], "rb") as f:
        settings = {"seed": SEED, "hidden": HIDDEN, "cases": hashlib.sha256(f.read()).hexdigest()}
    os.makedirs(os.path.dirname(CHECKPOINT), exist_ok=True)
    state = load(settings, cases.shape[1])
    while state["iteration"] < ITERATIONS:
        iterate(state, cases, labels)
        save(settings, state)
        if state["iteration"] % 10 == 0:
            print(f"iteration {state['iteration']}: loss {state['loss'][-1]:.5f}", flush=True)
    with open("model.json", "w") as out:
        model = as_json(state)
        json.dump({"settings": {**settings, "iterations": ITERATIONS}, "weights": model["weights"], "loss": model["loss"]}, out)


main()
