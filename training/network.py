"""The network and its training step: Needle 2's architecture at a small size, in JAX."""

import jax
import jax.numpy as jnp
import optax
from needle.model.architecture import TransformerConfig, make_causal_mask
from needle.model.quantize import cq_ste_params

BITS = 4
GROUP = 128
#: The small confidence head learns this many times faster than the trunk.
HEAD_RATE = 5.0
CONFIDENCE_WEIGHT = 0.6


def make_config(args, vocab_size):
    """The shape of the network."""
    return TransformerConfig(
        vocab_size=vocab_size,
        d_model=args.d_model,
        num_heads=args.heads,
        num_kv_heads=args.kv_heads,
        num_layers=args.layers,
        engram_layers=(1,),
        engram_slots=args.slots,
        mhc_lanes=args.lanes,
        flash=False,
        remat=False,
        dtype="float32",
        max_seq_len=1024,
        scan_unroll=args.layers,
    )


def init_params(model, seed):
    """Fresh weights, the confidence head's included."""
    ids = jnp.ones((1, 8), jnp.int32)
    keys = jax.random.split(jax.random.PRNGKey(seed))
    params = dict(jax.jit(lambda key: model.init(key, ids))(keys[0])["params"])
    head = jax.jit(lambda key: model.init(key, ids, method=model.forward_confidence))(keys[1])["params"]
    params["confidence_head"] = head["confidence_head"]
    # Heads for several tokens at once are never exported.
    return {name: value for name, value in params.items() if not name.startswith("mtp_")}


def logits_and_confidence(net, tokens, keep):
    """One pass for both losses: next-token logits and the confidence logit."""
    mask = make_causal_mask(tokens.shape[1])
    embedded = net.embedding(tokens) * net.embed_scale
    out, hidden = net.stack(
        embedded,
        mask=mask,
        rope=net._rope(tokens.shape[1]),
        engram_kv=net._engram_kv(tokens, mask, False),
        collect_hidden=True,
    )
    layers = jnp.stack([embedded, *hidden], axis=2)
    return out @ net.embedding.embedding.T, net.confidence_head(layers, keep=keep)


def fake_quantized(params):
    """Weights as they will be after export, with the gradient passed straight through."""
    body = {name: value for name, value in params.items() if name != "confidence_head"}
    return {**cq_ste_params(body, BITS, GROUP), "confidence_head": params["confidence_head"]}


def make_step(model, *, joint):
    """(optimizer, jitted step); `joint` adds quantization and the confidence loss to the loss on the call."""
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0), optax.scale_by_adam(b2=0.98), optax.add_decayed_weights(0.01)
    )

    def loss(params, ids, mask, keep, right):
        logits, confidence, confidence_loss = outputs(model, params, ids, keep, right, joint=joint)
        entropy = optax.softmax_cross_entropy_with_integer_labels(logits[:, :-1], ids[:, 1:])
        weight = mask[:, 1:]
        call_loss = (entropy * weight).sum() / jnp.maximum(weight.sum(), 1)
        hits = ((confidence > 0) == (right > 0.5)).mean()
        return call_loss + CONFIDENCE_WEIGHT * confidence_loss, (call_loss, confidence_loss, hits)

    @jax.jit
    def step(params, state, rate, ids, mask, keep, right):
        (_, seen), gradients = jax.value_and_grad(loss, has_aux=True)(params, ids, mask, keep, right)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, scaled(updates, rate)), state, seen

    return optimizer, step


def outputs(model, params, ids, keep, right, *, joint):
    """(logits, confidence logits, confidence loss)."""
    if not joint:
        return model.apply({"params": params}, ids), jnp.zeros(ids.shape[0]), 0.0
    used = fake_quantized(params)
    logits, confidence = model.apply({"params": used}, ids, keep, method=logits_and_confidence)
    return logits, confidence, optax.sigmoid_binary_cross_entropy(confidence, right).mean()


def scaled(updates, rate):
    """Updates times the learning rate, downhill."""
    return {
        name: jax.tree_util.tree_map(
            lambda u, r=rate * (HEAD_RATE if name == "confidence_head" else 1.0): -r * u, value
        )
        for name, value in updates.items()
    }
