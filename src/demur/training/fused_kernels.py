"""One GPU program trains one network, from its first batch to its last.

Weights, both moments of AMSGrad and the gradients stay in registers over all steps of a launch; only the rows of a
batch are read from memory. Everything is padded to powers of two: the weights and gradients of a padded unit are and
stay zero. This module needs Triton, which comes with the CUDA build of torch; nothing imports it before a network is
trained on a GPU.
"""

import triton
import triton.language as tl


@triton.jit
def _value_and_slope(z, margin: tl.constexpr):
    """Return phi(z) and phi'(z) of a margin function."""
    if margin == "log":
        small = tl.exp(-tl.abs(z))
        value = tl.maximum(-z, 0.0) + tl.log(1.0 + small)
        slope = -tl.where(z >= 0, small, 1.0) / (1.0 + small)
    elif margin == "exp":
        exponent = tl.minimum(-z, 30.0)
        power = tl.exp(exponent)
        value = power * (1.0 + (-z - exponent))
        slope = -power
    elif margin == "sq":
        value = (1.0 - z) * (1.0 - z)
        slope = -2.0 * (1.0 - z)
    elif margin == "sqhin":
        gap = tl.maximum(1.0 - z, 0.0)
        value = gap * gap
        slope = -2.0 * gap
    else:
        tl.static_assert(margin == "hin", "an unknown margin function")
        value = tl.maximum(1.0 - z, 0.0)
        slope = tl.where(z < 1.0, -1.0, 0.0)
    return value, slope


@triton.jit
def _kinked_slope(m, cost):
    """Return the slope of 2 max(c gamma, (1 - c) gamma) with gamma = max(m, -1), split evenly at 0 as autograd does."""
    steep, flat = 2.0 * tl.maximum(cost, 1.0 - cost), 2.0 * tl.minimum(cost, 1.0 - cost)
    inside = tl.where(m > 0.0, steep, tl.where(m < 0.0, flat, 0.5 * (steep + flat)))
    return tl.where(m >= -1.0, inside, 0.0)


@triton.jit
def _shared_among_largest(values, is_in):
    """Return the maximum of each row, and 1 / n at each of the n places that have it."""
    masked = tl.where(is_in, values, -float("inf"))
    top = tl.max(masked, 1)
    hits = tl.where(is_in & (masked == top[:, None]), 1.0, 0.0)
    return top, hits / tl.sum(hits, 1)[:, None]


@triton.jit
def _score_gradient(
    scores, y, weight, cost, alpha, beta, column, n_outputs,
    loss: tl.constexpr, margin: tl.constexpr,
):  # fmt: skip
    """Return the gradient of the weighted losses of a batch with respect to its scores (rows, outputs)."""
    in_use = column[None, :] < n_outputs
    own = column[None, :] == y[:, None]
    wide = weight[:, None]
    if loss == "ce":
        shifted = tl.where(in_use, scores, -float("inf"))
        power = tl.exp(shifted - tl.max(shifted, 1)[:, None])
        gradient = power * (weight / tl.sum(power, 1))[:, None] - tl.where(own, wide, 0.0)
    elif loss == "ova":
        sign = tl.where(own, 1.0, -1.0)
        _, slope = _value_and_slope(sign * scores, margin)
        gradient = sign * slope * wide
    elif loss == "ova_hinge":
        pull = tl.where(scores < 1.0, -cost, 0.0)
        push = tl.where(scores > -1.0, 1.0 - cost, 0.0)
        gradient = tl.where(own, pull, push) * wide
    elif loss == "cs_hinge":
        other, share = _shared_among_largest(scores, in_use & (own == 0))
        m = other - tl.sum(tl.where(own, scores, 0.0), 1)
        slope = (_kinked_slope(m, cost) * weight)[:, None]
        gradient = slope * (share - tl.where(own, 1.0, 0.0))
    elif loss == "bep":
        code = tl.where((y[:, None] >> column[None, :]) & 1 == 1, 1.0, -1.0)
        m, share = _shared_among_largest(code * scores, in_use)
        gradient = (_kinked_slope(m, cost) * weight)[:, None] * share * code
    else:
        is_rejector = column[None, :] == n_outputs - 1
        others = (column[None, :] < n_outputs - 1) & (own == 0)
        r = tl.sum(tl.where(is_rejector, scores, 0.0), 1)
        g_own = tl.sum(tl.where(own, scores, 0.0), 1)
        _, rejecting = _value_and_slope(beta * r, margin)
        rejecting = cost * beta * rejecting * weight
        if loss == "apc":
            _, slope = _value_and_slope(alpha * ((g_own - r)[:, None] - scores), margin)
            slope = tl.where(others, slope * wide * alpha, 0.0)
            total = tl.sum(slope, 1)
            last = rejecting - total
        else:
            tl.static_assert(loss == "mpc", "an unknown loss")
            factor, factor_slope = _value_and_slope(-alpha * r, margin)
            value, slope = _value_and_slope(alpha * (g_own[:, None] - scores), margin)
            pairs = tl.where(others, wide * alpha, 0.0)
            slope = slope * pairs * factor[:, None]
            total = tl.sum(slope, 1)
            last = rejecting - factor_slope * tl.sum(value * pairs, 1)
        gradient = tl.where(own, total[:, None], -slope)
        gradient = tl.where(is_rejector, last[:, None], gradient)
    return tl.where(in_use, gradient, 0.0)


@triton.jit
def _updated(w, g, mean, square, largest, decay, step_size, root):
    """Return one step of AMSGrad as torch.optim.Adam(amsgrad=True) makes it: weights and the three moments."""
    g = g + decay * w
    mean = mean + 0.1 * (g - mean)
    square = 0.999 * square + 0.001 * g * g
    largest = tl.maximum(largest, square)
    return w - step_size * mean / (tl.sqrt(largest) / root + 1e-8), mean, square, largest


@triton.jit
def _at(unit, source, n_units, n_sources):
    """Return the places of a weight matrix (units, sources) in a network's vector, and which of them exist."""
    return unit[:, None] * n_sources + source[None, :], (unit[:, None] < n_units) & (source[None, :] < n_sources)


@triton.jit
def _load(vector, plane, at, has):
    """Return weights of a network and their three moments, each from its own plane."""
    mean, square, largest = vector + plane, vector + 2 * plane, vector + 3 * plane
    weights, means = tl.load(vector + at, has, 0.0), tl.load(mean + at, has, 0.0)
    return weights, means, tl.load(square + at, has, 0.0), tl.load(largest + at, has, 0.0)


@triton.jit
def _store(vector, plane, at, has, weights, mean, square, largest):
    """Write weights of a network and their three moments."""
    tl.store(vector + at, weights, has)
    tl.store(vector + plane + at, mean, has)
    tl.store(vector + 2 * plane + at, square, has)
    tl.store(vector + 3 * plane + at, largest, has)


@triton.jit
def _gradients(
    x_ptr, y_ptr, weight_ptr, order_ptr, place_ptr, in_batch, w1, b1, w2, b2, cost, alpha, beta, f, b, o,
    n_features, n_outputs,
    loss: tl.constexpr, margin: tl.constexpr, weighted: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Return the contribution of some rows of a batch to the gradients of w1, b1, w2 and b2."""
    row = tl.load(order_ptr + b, in_batch, 0)
    x = tl.load(x_ptr + row[:, None] * n_features + f[None, :], f[None, :] < n_features, 0.0)
    y = tl.load(y_ptr + row)
    weight = tl.load(place_ptr + b, in_batch, 0.0)
    if weighted:
        weight *= tl.load(weight_ptr + row)
    active = tl.maximum(tl.dot(x, tl.trans(w1), input_precision=precision) + b1[None, :], 0.0)
    scores = tl.dot(active, tl.trans(w2), input_precision=precision) + b2[None, :]
    signal = _score_gradient(scores, y, weight, cost, alpha, beta, o, n_outputs, loss, margin)
    below = tl.where(active > 0.0, tl.dot(signal, w2, input_precision=precision), 0.0)
    g2 = tl.dot(tl.trans(signal), active, input_precision=precision)
    g1 = tl.dot(tl.trans(below), x, input_precision=precision)
    return g1, tl.sum(below, 0), g2, tl.sum(signal, 0)


@triton.jit(do_not_specialize=["n_steps", "epoch_steps", "batch_size", "order_length", "n_networks", "n_parameters"])
def train_networks(
    x_ptr, y_ptr, weight_ptr, order_ptr, place_ptr, orders_ptr, state_ptr, step_ptr, cost_ptr, decay_ptr, alpha_ptr,
    beta_ptr, n_networks, order_length, n_steps, epoch_steps, batch_size, n_features, n_hidden,
    n_outputs, n_parameters,
    features: tl.constexpr, hidden: tl.constexpr, outputs: tl.constexpr, rows: tl.constexpr, in_pieces: tl.constexpr,
    loss: tl.constexpr, margin: tl.constexpr, weighted: tl.constexpr, precision: tl.constexpr,
    own_units: tl.constexpr,
):  # fmt: skip
    """Train one network on ``n_steps`` batches; its state is read before and written after.

    ``state`` holds, one after the other, the vectors of all networks, their means, squares and largest squares.
    ``orders`` says which of the rows of ``order`` a network follows, ``place`` gives each position of an epoch its
    weight, and ``step`` holds the two bias corrections of each step. A batch of more than ``rows`` rows is processed in
    pieces.
    """
    network = tl.program_id(0)
    f, h, o = tl.arange(0, features), tl.arange(0, hidden), tl.arange(0, outputs)
    b = tl.arange(0, rows)
    cost, decay = tl.load(cost_ptr + network), tl.load(decay_ptr + network)
    alpha, beta = tl.load(alpha_ptr + network), tl.load(beta_ptr + network)
    order_ptr += tl.load(orders_ptr + network).to(tl.int64) * order_length

    at_w1, has_w1 = _at(h, f, n_hidden, n_features)
    at_w2, has_w2 = _at(o, h, n_outputs, n_hidden)
    if own_units:
        has_w2 = has_w2 & ((o[:, None] == n_outputs - 1) == (h[None, :] >= n_hidden // 2))
    at_w2 += (n_features + 1) * n_hidden
    at_b1, has_b1 = n_features * n_hidden + h, h < n_hidden
    at_b2, has_b2 = (n_features + 1) * n_hidden + n_hidden * n_outputs + o, o < n_outputs
    plane = n_networks.to(tl.int64) * n_parameters
    vector = state_ptr + network.to(tl.int64) * n_parameters
    w1, w1_mean, w1_square, w1_largest = _load(vector, plane, at_w1, has_w1)
    b1, b1_mean, b1_square, b1_largest = _load(vector, plane, at_b1, has_b1)
    w2, w2_mean, w2_square, w2_largest = _load(vector, plane, at_w2, has_w2)
    b2, b2_mean, b2_square, b2_largest = _load(vector, plane, at_b2, has_b2)

    for step in range(n_steps):
        order, place = order_ptr + step * batch_size, place_ptr + step % epoch_steps * batch_size
        g1, g1_bias, g2, g2_bias = _gradients(
            x_ptr, y_ptr, weight_ptr, order, place, b < batch_size, w1, b1, w2, b2, cost, alpha, beta, f, b, o,
            n_features, n_outputs, loss, margin, weighted, precision)  # fmt: skip
        if in_pieces:
            for start in range(rows, batch_size, rows):
                more1, more1_bias, more2, more2_bias = _gradients(
                    x_ptr, y_ptr, weight_ptr, order + start, place + start, start + b < batch_size, w1, b1, w2, b2,
                    cost, alpha, beta, f, b, o, n_features, n_outputs, loss, margin, weighted, precision)  # fmt: skip
                g1, g1_bias, g2, g2_bias = g1 + more1, g1_bias + more1_bias, g2 + more2, g2_bias + more2_bias
        if own_units:
            g2 = tl.where(has_w2, g2, 0.0)
        size, root = tl.load(step_ptr + 2 * step), tl.load(step_ptr + 2 * step + 1)
        b2, b2_mean, b2_square, b2_largest = _updated(
            b2, g2_bias, b2_mean, b2_square, b2_largest, decay, size, root)  # fmt: skip
        b1, b1_mean, b1_square, b1_largest = _updated(
            b1, g1_bias, b1_mean, b1_square, b1_largest, decay, size, root)  # fmt: skip
        w2, w2_mean, w2_square, w2_largest = _updated(
            w2, g2, w2_mean, w2_square, w2_largest, decay, size, root)  # fmt: skip
        w1, w1_mean, w1_square, w1_largest = _updated(
            w1, g1, w1_mean, w1_square, w1_largest, decay, size, root)  # fmt: skip

    _store(vector, plane, at_w1, has_w1, w1, w1_mean, w1_square, w1_largest)
    _store(vector, plane, at_b1, has_b1, b1, b1_mean, b1_square, b1_largest)
    _store(vector, plane, at_w2, has_w2, w2, w2_mean, w2_square, w2_largest)
    _store(vector, plane, at_b2, has_b2, b2, b2_mean, b2_square, b2_largest)
