"""Weights read back from a `.cact` file, so that training can go on from a model whose checkpoint is gone.

What the file holds in four bits comes back in steps of four bits; a few hundred steps of training smooth them again.
"""

import numpy as np
from needle.model.export import read_export

#: Per-layer tensors in the order of the file: (path under the layer's block, kept transposed in the file?).
LAYER = (
    (("ZCRMSNorm_0", "scale"), False),
    (("self_attn", "q_proj", "kernel"), True),
    (("self_attn", "k_proj", "kernel"), True),
    (("self_attn", "v_proj", "kernel"), True),
    (("self_attn", "q_norm", "scale"), False),
    (("self_attn", "k_norm", "scale"), False),
    (("self_attn", "gate_proj", "kernel"), True),
    (("self_attn", "out_proj", "kernel"), True),
    (("post_attn_norm", "scale"), False),
    (("attn_gate",), False),
    (("pre_hada_norm", "scale"), False),
    (("hadamard_mlp", "d1"), False),
    (("hadamard_mlp", "d2"), False),
    (("hadamard_mlp", "d3"), False),
)
LANES = ("mhc_a_pre", "mhc_a_post", "mhc_a_res", "mhc_b_pre", "mhc_b_post", "mhc_b_res")
LANE_PROJECTIONS = ("mhc_phi_pre", "mhc_phi_post", "mhc_phi_res")


def read_weights(path, like):
    """The weights of a file, in the tree and shapes of `like` (fresh parameters of the same geometry).

    Raises ValueError when the file holds another geometry.
    """
    _, tensors = read_export(str(path))
    tensors, params = iter(tensors), _copy(like)
    _put(params["embedding"], "embedding", next(tensors))
    block = params["stack"]["layers"]["block"]
    for layer in range(len(block["attn_gate"])):
        for keys, transposed in LAYER:
            tensor = next(tensors)
            _put_layer(block, keys, layer, tensor.T if transposed else tensor)
    for name in LANES:
        _put(params["stack"], name, next(tensors))
    for name in LANE_PROJECTIONS:
        layers, width, lanes = params["stack"][name].shape
        _put(params["stack"], name, next(tensors).reshape(layers, lanes, width).transpose(0, 2, 1))
    for name in sorted(key for key in params if key.startswith("engrams_")):
        _put(params[name], "embedding", next(tensors))
        _put(params[name]["key_proj"], "kernel", next(tensors).T)
        _put(params[name]["value_proj"], "kernel", next(tensors).T)
        _put(params[name], "taps", next(tensors))
    _put(params["stack"]["final_norm"], "scale", next(tensors))
    _confidence(params["confidence_head"], tensors)
    return params


def _confidence(head, tensors):
    """The confidence head, the only one these models have."""
    manifest = next(tensors)
    if list(manifest) != [2.0]:
        raise ValueError(f"the file holds the heads {list(manifest)}, not a confidence head alone")
    _put(head, "probes", next(tensors))
    _put(head["proj"], "kernel", next(tensors).T)
    _put(head["proj"], "bias", next(tensors))


def _copy(tree):
    """The same tree, writable."""
    return {key: _copy(value) if hasattr(value, "items") else np.array(value) for key, value in tree.items()}


def _put(node, key, tensor):
    """One whole tensor; sizes must agree, shapes may be folded (tables are stored flat)."""
    if node[key].size != tensor.size:
        raise ValueError(f"{key}: {tensor.shape} in the file, {node[key].shape} in the network")
    node[key] = np.asarray(tensor, np.float32).reshape(node[key].shape)


def _put_layer(block, keys, layer, tensor):
    """One layer's part of a stacked tensor."""
    node = block
    for key in keys[:-1]:
        node = node[key]
    stacked = node[keys[-1]]
    if stacked[layer].size != tensor.size:
        raise ValueError(f"{'.'.join(keys)}: {tensor.shape} in the file, {stacked[layer].shape} in the network")
    stacked[layer] = tensor.reshape(stacked[layer].shape)
