r"""Theorems for losses given by their code: its operations are traced, its structure recognised, its slopes bounded.

PyTorch records the operations of the loss and of its rule on tensors that hold no numbers, so that whatever depends on
a value (a branch, ``item()``, NumPy) stops the trace. The loss of each label is then a sum of functions of one variable
each, or nothing is proved. All slopes are bounded with interval arithmetic on a finite subdivision of the whole line,
whose two outer intervals are infinite. With q = 1 - c, three arguments lead from there to the minimisers.

**One score at a time.** The risk is a sum over the classes of w_p(s) = p a(s) + (1 - p) b(s), p the probability of the
class. If w' < 0 up to a score h for p = q + 1e-9 and for p = 1, it is for all p between, since w' is linear in p: their
minimisers are above h. In the same way those for all p <= q - 1e-9 are below l. A last score with a function of its
own, the same for every label, has its minimisers between l and h. One score for two classes has such scores for p = q
and for p = 1 - q.

**The order of K + 1 actions.** The loss is l(p_y) + (1 - c) l(p_(K+1)) with p the softmax and l' < 0. If an action of
larger weight had the smaller p, exchanging the two would lower the risk; if both had the same, moving some of it would.

**One minimum on the simplex.** The loss is a(p_y) plus b(p_k) over the other classes, both strictly convex in p (or b
constant), and a' < 0. Then the one minimum is where eta_k a'(p_k) + (1 - eta_k) b'(p_k) is the same for all k. That is
so for eta = alpha p + beta if the expression is then constant, and for eta proportional to N(p_k), b constant, if N a'
is. Near p = 1 the derivatives may vanish.

The rule is evaluated with intervals too: on a box that contains the minimisers for each decision of Chow's rule. All
this is about real numbers; torch's softplus counts as log(1 + e^x), which it is up to 2.1e-9.
"""

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache, partial
from typing import Any, TypeAlias

import sympy
import torch
from mpmath import inf, iv
from sympy import Expr, Symbol
from torch import Tensor
from torch._decomp import get_decompositions
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from demur.losses import Loss
from demur.losses.loss import CLEAR

Box: TypeAlias = Any
"""An interval of mpmath."""
Boxes: TypeAlias = dict[Symbol, Box]
BITS = 80
"""The precision of the intervals: slopes differ from 0 by about 1e-10 of their size near the threshold."""
LARGEST_DENOMINATOR = 10**12
"""Constants are taken as fractions, so that 1 - 0.7 is 3/10."""
MOST_PIECES = 3000
NARROWEST = 2.0**-60
LARGEST_FORM = 1000
"""Maximum number of parts of a form: longer forms take minutes to differentiate, and loops can produce millions of
parts."""
LAST_PIECE = 2.0**-30
"""This close to p = 1 a derivative may be 0."""
LEAST_COST = 1e-6
"""torch's softplus is wrong by up to 2.1e-9 beyond 20, which matters for thresholds there."""
SAME = 1e-9
"""Largest tolerated difference between values of the code and of the formulas, relative to 1 + their size."""
N_SCORES = 200
"""Number of random scores at which code and formulas are compared."""
COMMON = Symbol("common", real=True)
"""A constant added to all scores, which does not change their softmax."""
S, P = Symbol("s", real=True), Symbol("p", positive=True)
"""The variable of a function of one score, or of one probability."""
MOVES = {
    *("select", "slice", "unsqueeze", "squeeze", "view", "_unsafe_view", "reshape", "expand", "gather", "index", "cat"),
    *("stack", "permute", "transpose", "t", "clone", "alias", "flip", "roll", "masked_fill", "where", "scatter"),
}
"""Operations that only move numbers to other places."""
LIKE = {"zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"}
aten = torch.ops.aten
SIMPLER: Any = get_decompositions(
    [aten.nll_loss_forward, aten.mse_loss, aten.binary_cross_entropy_with_logits, aten.soft_margin_loss, aten.mean]
)
UNDECIDED = object()
"""Stands for a position or a comparison that the boxes do not determine, and for what follows from it."""


@dataclass(frozen=True)
class Certificate:
    """A proof that every minimiser of a loss decides as Chow's rule.

    Parameters
    ----------
    method : str
        Method of the proof.
    statement : str
        Statement that was proved.
    checked : tuple of str
        Facts that were verified about the code and the hypotheses.
    """

    method: str
    statement: str
    checked: tuple[str, ...]

    @property
    def lines(self) -> tuple[str, ...]:
        """The statement and what was checked, to print."""
        return (self.statement, *self.checked)


class NotProvedError(Exception):
    """Something in the code is not recognised, or a bound is not good enough."""


class SoftmaxOfError(NotProvedError):
    """The scores are read through a softmax of these forms."""


class Softplus(sympy.Function):  # type: ignore[misc] # sympy has no types
    """log(1 + e^x)."""

    def fdiff(self, argindex: int = 1) -> Expr:
        return Sigmoid(self.args[0])


class Sigmoid(sympy.Function):  # type: ignore[misc]
    """1 / (1 + e^-x)."""

    def fdiff(self, argindex: int = 1) -> Expr:
        return self * (1 - self)


class Tangent(sympy.Function):  # type: ignore[misc]
    """e^x up to a limit, and its tangent beyond it."""

    def fdiff(self, argindex: int = 1) -> Expr:
        return sympy.exp(sympy.Min(*self.args))


def trace(function: Callable[..., Any], *examples: Tensor) -> GraphModule:
    """Record the operations of a function on tensors without numbers; refuse a function that cannot be traced."""
    try:
        return make_fx(function, SIMPLER, tracing_mode="fake", _allow_non_fake_inputs=True)(*examples)
    except Exception as error:  # a user's own code may raise anything
        raise NotProvedError(str(error)) from error


def name_of(node: Any) -> str:
    """Return the name of an operation without its overload."""
    name: str = getattr(getattr(node, "overloadpacket", node), "__name__", "")
    return name


def exact(number: Any) -> Expr:
    """Return a constant as a fraction: the simple one that it rounds to, or its exact value."""
    simple = Fraction(number).limit_denominator(LARGEST_DENOMINATOR)
    return sympy.Rational(simple if math.isclose(simple, number, rel_tol=1e-15) else Fraction(number))


@cache
def size(x: Expr) -> int:
    """Return the number of parts of a form."""
    return 1 + sum(map(size, x.args))


def logarithm(x: Expr) -> Expr:
    """Return the logarithm, of a product as a sum."""
    rest = x - 1
    return Softplus(rest.args[0]) if rest.func is sympy.exp else sympy.expand_log(sympy.log(x))


largest_of, least_of = (partial(function, evaluate=False) for function in (sympy.Max, sympy.Min))
"""The larger and the smaller of two forms; to compare symbols takes long."""


def softplus(x: Expr, beta: int = 1, threshold: int = 20) -> Expr:
    """Return log(1 + e^(beta x)) / beta."""
    if threshold < 20:
        raise NotProvedError("softplus with a low threshold")
    return Softplus(beta * x) / beta


def product(x: Expr, y: Expr) -> Expr:
    """Return the product; exp(min(u, c)) (1 + u - min(u, c)) is the exponential with a tangent."""
    cut = x.args[0] if x.func is sympy.exp else x
    if cut.func is sympy.Min:
        limit, inner = sorted(cut.args, key=lambda part: not part.is_Number)
        if y == 1 + inner - cut:
            return Tangent(inner, limit)
    return x * y


ELEMENTWISE: dict[str, Callable[..., Expr]] = {
    "add": operator.add,
    "sub": operator.sub,
    "rsub": lambda x, y: y - x,
    "neg": operator.neg,
    "mul": product,
    "div": operator.truediv,
    "pow": operator.pow,
    "exp": sympy.exp,
    "expm1": lambda x: sympy.exp(x) - 1,
    "log": logarithm,
    "log1p": lambda x: logarithm(1 + x),
    "sigmoid": Sigmoid,
    "softplus": softplus,
    "relu": lambda x: largest_of(x, sympy.S.Zero),
    "minimum": least_of,
    "maximum": largest_of,
    "abs": lambda x: largest_of(x, -x),
    "square": lambda x: x**2,
    "reciprocal": lambda x: 1 / x,
}


def bounds(x: Expr, boxes: Boxes) -> Box:
    """Return an interval that contains the values of a form over a box."""
    if x in boxes:
        return boxes[x]
    if x.is_Rational:
        return iv.mpf(int(x.p)) / int(x.q)
    if x.func not in BOUNDS or not x.args:
        raise NotProvedError(f"{x} is not bounded")
    if x.is_Pow:
        return raised(bounds(x.base, boxes), x.exp)
    return BOUNDS[x.func](*(bounds(part, boxes) for part in x.args))


def raised(x: Box, power: Expr) -> Box:
    """Return an interval to a rational power."""
    if power == int(power):
        return x ** int(power) if power > 0 else 1 / x ** int(-power)
    return iv.exp(BOUNDS[sympy.log](x) * int(power.p) / int(power.q))


BOUNDS: dict[Any, Callable[..., Box]] = {
    sympy.Add: lambda *x: sum(x[1:], x[0]),
    sympy.Mul: lambda *x: math.prod(x[1:], start=x[0]),
    sympy.Pow: raised,
    sympy.exp: iv.exp,
    sympy.log: lambda x: iv.log(iv.mpf([max(x.a, 0), x.b])),
    Softplus: lambda x: iv.log(1 + iv.exp(x)),
    Tangent: lambda x, c: (
        iv.exp(iv.mpf([min(x.a, c.a), min(x.b, c.a)])) * (1 + iv.mpf([max(x.a - c.a, 0), max(x.b - c.a, 0)]))
    ),
    Sigmoid: lambda x: 1 / (1 + iv.exp(-x)),
    sympy.Max: lambda *x: iv.mpf([max(each.a for each in x), max(each.b for each in x)]),
    sympy.Min: lambda *x: iv.mpf([min(each.a for each in x), min(each.b for each in x)]),
    sympy.Heaviside: lambda x, _: iv.mpf([float(x.a > 0), float(x.b >= 0)]),
}


@dataclass(frozen=True)
class Ids:
    """A tensor of the numbers of forms."""

    ids: Tensor


@dataclass
class Reader:
    """Reads recorded operations as forms. Tensors of forms are tensors of their numbers in a list.

    Parameters
    ----------
    scores : list of Expr
        The forms that stand for the scores.
    p : list of Symbol
        Their softmax, where they are read through it.
    boxes : dict, optional
        Where the variables are, for a rule.
    """

    scores: list[Expr]
    p: list[Symbol] = field(default_factory=list)
    boxes: Boxes | None = None
    forms: list[Expr] = field(default_factory=list)

    def ids(self, forms: Sequence[Expr], shape: Sequence[int]) -> Ids:
        if any(size(form) > LARGEST_FORM for form in forms):
            raise NotProvedError("a form is too long")
        start = len(self.forms)
        self.forms += forms
        return Ids(torch.arange(start, len(self.forms)).reshape(tuple(shape)))

    def numbers(self, value: Any) -> Tensor:
        """Return the numbers of forms, also for constants."""
        if isinstance(value, Ids):
            return value.ids
        tensor = torch.as_tensor(value, dtype=torch.float64)
        return self.ids([exact(number) for number in tensor.reshape(-1).tolist()], tensor.shape).ids

    def by_row(self, x: Any, dim: int, function: Callable[[list[Expr]], list[Expr]], *, keepdim: bool = True) -> Ids:
        """Apply a function to the forms along one axis."""
        moved = self.numbers(x).movedim(dim, -1)
        made = [function([self.forms[i] for i in row]) for row in moved.reshape(-1, moved.shape[-1]).tolist()]
        out = self.ids([form for row in made for form in row], (*moved.shape[:-1], len(made[0]))).ids.movedim(-1, dim)
        return Ids(out if keepdim else out.squeeze(dim))

    def read(self, graph: GraphModule, *inputs: Any) -> Any:
        """Return the results of the operations for these inputs."""
        values: dict[Node, Any] = {}
        given = iter(inputs)
        for node in graph.graph.nodes:
            arguments = torch.fx.map_arg(node.args, values.__getitem__)
            if node.op == "placeholder":
                values[node] = next(given)
            elif node.op == "get_attr":
                values[node] = getattr(graph, str(node.target)).clone()
            elif node.op == "output":
                return arguments[0]
            else:
                values[node] = self.operation(node.target, arguments, node.kwargs)
        return None

    def operation(self, target: Any, arguments: Any, options: dict[str, Any]) -> Any:
        """Return the result of one operation."""
        flat = [each for a in arguments for each in (a if isinstance(a, list | tuple) else [a])]
        name = name_of(target)
        if name == "getitem":
            return arguments[0][arguments[1]]
        if any(each is UNDECIDED for each in flat):
            return UNDECIDED
        if not any(isinstance(each, Ids) for each in flat):
            if torch.Tag.nondeterministic_seeded in target.tags:
                raise NotProvedError(f"{name} is random")
            return target(*arguments, **options)
        if name in LIKE:
            return target(torch.zeros(arguments[0].ids.shape, dtype=torch.float64), *arguments[1:], **options)
        if name == "masked_fill_" and self.boxes is None:  # of a loss, whose values are compared with the forms read
            name, target = "masked_fill", aten.masked_fill
        if name in MOVES:
            return self.moved(name, target, list(arguments))
        method = getattr(self, f"on_{name}", None)
        if method is not None:
            return method(*arguments, **options)
        if name not in ELEMENTWISE or options:
            raise NotProvedError(f"{name} is not recognised")
        return self.each(ELEMENTWISE[name], *arguments)

    def moved(self, name: str, target: Any, a: list[Any]) -> Ids:
        if name in ("cat", "stack"):
            a[0] = [self.numbers(each) for each in a[0]]
        elif name == "where":
            a[1:] = map(self.numbers, a[1:])
        elif name in ("masked_fill", "scatter"):
            filled = self.numbers(a[-1])
            a[0], a[-1] = self.numbers(a[0]), filled if filled.ndim else int(filled)
        result: Tensor = target(*(each.ids if isinstance(each, Ids) else each for each in a))
        return Ids(result)

    def each(self, function: Callable[..., Expr], *arguments: Any) -> Ids:
        """Apply a function of forms to every place."""
        tensors = torch.broadcast_tensors(*map(self.numbers, arguments))  # type: ignore[no-untyped-call]
        places = zip(*(tensor.reshape(-1).tolist() for tensor in tensors), strict=True)
        return self.ids([function(*(self.forms[i] for i in place)) for place in places], tensors[0].shape)

    def on_clamp(self, x: Ids, low: Any = None, high: Any = None) -> Ids:
        if low is not None:
            x = self.each(lambda z, end: z if self.above(z - end) else largest_of(z, end), x, low)
        return x if high is None else self.each(least_of, x, high)

    def above(self, x: Expr) -> bool:
        """Return whether a form is at least 0 in the boxes, up to rounding."""
        return self.boxes is not None and bool(bounds(sympy.expand(x), self.boxes).a > -1e-12)

    def on_log_sigmoid_forward(self, x: Ids) -> tuple[Ids, object]:
        return self.each(lambda z: -Softplus(-z), x), UNDECIDED

    def on_sum(self, x: Any, dims: Sequence[int], keepdim: bool = False) -> Ids:
        return self.by_row(x, dims[0], lambda row: [self.added(row)], keepdim=keepdim)

    def added(self, row: list[Expr]) -> Expr:
        """Return the sum of forms, where all p_j add up to 1."""
        if len(row) == len(self.p):
            factors = {form.diff(p) for form, p in zip(row, self.p, strict=True)}
            factor = factors.pop()
            if not factors and not factor.free_symbols & {*self.p}:
                return factor + sympy.Add(*(form - factor * p for form, p in zip(row, self.p, strict=True)))
        return sympy.Add(*row)

    def shared(self, row: list[Expr]) -> list[Expr]:
        """Return forms divided by their sum."""
        total = self.added(row)
        return [form / total for form in row]

    def exponentials(self, row: list[Expr]) -> list[Expr]:
        """Return the exponentials of forms whose softmax is read."""
        if not self.p:
            raise SoftmaxOfError(row)
        return [sympy.exp(sympy.expand(form)) for form in row]

    def on__softmax(self, x: Ids, dim: int, _: bool) -> Ids:
        return self.by_row(x, dim, lambda row: self.shared(self.exponentials(row)))

    def on__log_softmax(self, x: Ids, dim: int, half: bool) -> Ids:
        return self.each(logarithm, self.on__softmax(x, dim, half))

    def on_logsumexp(self, x: Ids, dims: Sequence[int], keepdim: bool = False) -> Ids:
        return self.by_row(x, dims[0], lambda row: [logarithm(self.added(self.exponentials(row)))], keepdim=keepdim)

    def largest(self, row: list[Expr], n: int = 1) -> tuple[list[Expr], Any]:
        """Return the largest of a row, or the two largest, and the place of the largest."""
        if self.boxes is None:  # a loss may subtract the largest score before a softmax
            return [Symbol(f"max{row}", real=True)], UNDECIDED
        common = row[0].diff(COMMON) * COMMON
        where = [bounds(sympy.expand(form - common), self.boxes) for form in row]
        places = [i for i, a in enumerate(where) if all(a.a > b.b for j, b in enumerate(where) if j != i)]
        found = []
        for k in range(n):
            fresh = sympy.Dummy(real=True)
            self.boxes[fresh] = iv.mpf([sorted(ends)[-1 - k] for ends in ([b.a for b in where], [b.b for b in where])])
            found.append(common + fresh)
        return found, places[0] if places else UNDECIDED

    def on_amax(self, x: Any, dims: Sequence[int], keepdim: bool = False) -> Ids:
        return self.by_row(x, dims[0], lambda row: self.largest(row)[0], keepdim=keepdim)

    def on_argmax(self, x: Ids, dim: int) -> Any:
        (row,) = x.ids.movedim(dim, -1).reshape(-1, x.ids.shape[dim]).tolist()
        place = self.largest([self.forms[i] for i in row])[1]
        return place if place is UNDECIDED else torch.tensor([place])

    def on_max(self, x: Any, dim: int, keepdim: bool = False) -> Any:
        return self.on_amax(x, [dim], keepdim), UNDECIDED if self.boxes is None else self.on_argmax(x, dim)

    def on_topk(self, x: Any, k: int, dim: int = -1, *_: Any) -> Any:
        return self.by_row(x, dim, lambda row: self.largest(row, k)[0]), UNDECIDED

    def on_gt(self, x: Any, y: Any, true: bool = True) -> Any:
        gaps = self.each(lambda a, b: sympy.expand(a - b), x, y).ids
        found = [bounds(self.forms[i], self.boxes or {}) for i in gaps.reshape(-1).tolist()]
        if not all(gap.a > 0 or gap.b <= 0 for gap in found):
            return UNDECIDED
        return torch.tensor([bool(gap.a > 0) == true for gap in found]).reshape(gaps.shape)

    def on_ge(self, x: Any, y: Any) -> Any:
        return self.on_gt(y, x, False)

    def on_le(self, x: Any, y: Any) -> Any:
        return self.on_gt(x, y, False)

    def on_lt(self, x: Any, y: Any) -> Any:
        return self.on_gt(y, x)


def negative(form: Expr, variable: Symbol, low: Any, high: Any, *, last_piece: bool = False) -> None:
    """Prove that a form is below 0 from low to high, by dividing the interval until its bounds tell.

    Raises
    ------
    NotProvedError
        If they do not.
    """
    open_pieces = [(low, high)]
    for _ in range(MOST_PIECES):
        if not open_pieces:
            return
        a, b = open_pieces.pop()
        above = bounds(form, {variable: iv.mpf([a, b])}).b
        if above < 0 or (last_piece and a >= 1 - LAST_PIECE and above <= 0):
            continue
        middle = (a + b) / 2
        if a == -inf or b == inf:
            middle = -max(64.0, 4 * abs(b)) if a == -inf else max(64.0, 4 * abs(a))
        if abs(middle) > 1e7 or abs(b - a) < NARROWEST * (1 + abs(middle)):
            break
        open_pieces += [(a, middle), (middle, b)]
    raise NotProvedError("the sign of a slope is not resolved")


@dataclass
class Parts:
    """The loss of each label as a sum of functions of one variable each.

    Parameters
    ----------
    scores, variables : list
        The scores as forms, and the variables: the scores or the probabilities.
    values : list of Expr
        The loss of each label.
    own, other : Expr
        The function of the variable of a class where it is the label, and where it is not.
    last : list of Expr
        The functions of the variables beyond those of the classes.
    raw, seen : list
        The scores as symbols, and the forms whose softmax the probabilities are.
    """

    scores: list[Expr]
    variables: list[Symbol]
    values: list[Expr]
    own: Expr
    other: Expr
    last: list[Expr] = field(default_factory=list)
    raw: list[Symbol] = field(default_factory=list)
    seen: list[Expr] = field(default_factory=list)


def separated(graph: GraphModule, n_classes: int, n_outputs: int) -> Parts:
    """Read the loss of every label as a sum of functions of one score, or of one probability, each."""
    y = torch.arange(n_classes)
    raw = [Symbol(f"s{j}", real=True) for j in range(n_outputs)]
    p = [Symbol(f"p{j}", positive=True) for j in range(n_outputs)]
    seen: list[Expr] = raw
    try:
        return _parts(Reader(raw), graph, y, raw)
    except SoftmaxOfError as found:
        seen = found.args[0]
    except NotProvedError:
        pass
    scale = seen[0].diff(raw[0])
    shift = [form - scale * s for form, s in zip(seen, raw, strict=True)]
    if not (scale.is_Rational and scale > 0 and all(each.is_Rational for each in shift)):
        raise NotProvedError("a softmax of something else")
    scores = [(sympy.log(each) + COMMON - b) / scale for each, b in zip(p, shift, strict=True)]
    return replace(_parts(Reader(scores, p), graph, y, p), raw=raw, seen=seen)


def _parts(reader: Reader, graph: GraphModule, y: Tensor, variables: list[Symbol]) -> Parts:
    n_classes, n_outputs = len(y), len(variables)
    scores = reader.ids(reader.scores, (1, n_outputs)).ids.expand(n_classes, -1)
    read = reader.read(graph, Ids(scores), y)
    values = [reader.forms[i] for i in read.ids.tolist()]
    found = []
    for value in values:
        if any(len(term.free_symbols) > 1 for term in sympy.Add.make_args(value)):
            value = sympy.expand(value)
        row: dict[Symbol, list[Expr]] = {each: [] for each in variables}
        for term in sympy.Add.make_args(value):
            if len(term.free_symbols) > 1 or not term.free_symbols <= {*variables}:
                raise NotProvedError("a term of several variables")
            for each in term.free_symbols:
                row[each].append(term)
        found.append([sympy.Add(*terms).xreplace({each: P if reader.p else S}) for each, terms in row.items()])
    if (n_outputs, n_classes) == (1, 2):
        return Parts(reader.scores, variables, values, found[1][0], found[0][0])
    own, other, last = found[0][0], found[0][1], found[0][n_classes:]
    for k, each in enumerate(found):
        if each != [own if j == k else other for j in range(n_classes)] + last:
            raise NotProvedError("functions that depend on the label in another way")
    return Parts(reader.scores, variables, values, own, other, last)


Where: TypeAlias = Callable[[int | None], Boxes]
"""Where the variables are at the minimisers, by the class that Chow's rule answers, or None."""


def one_by_one(parts: Parts, q: float) -> Where:
    """Prove where the minimisers of each score are."""
    low, high = crossing(parts.own, parts.other, q)
    margin = (high - low) / 4
    for last in parts.last:
        negative(last.diff(S), S, -inf, low + margin)
        negative(-last.diff(S), S, high - margin, inf)
    n_classes = len(parts.values)
    below, above, beside = iv.mpf([-inf, low]), iv.mpf([high, inf]), iv.mpf([low + margin, high - margin])
    return lambda best: {
        s: beside if j >= n_classes else above if j == best else below for j, s in enumerate(parts.variables)
    }


def one_score(parts: Parts, q: float) -> Where:
    """Prove where the minimisers of the score of class 1 of two are."""
    (below, above), (least, low) = (crossing(parts.own, parts.other, level) for level in (q, 1 - q))
    ends = {None: [low, below], 0: [-inf, least], 1: [above, inf]}
    return lambda best: {parts.variables[0]: iv.mpf(ends[best])}


def crossing(own: Expr, other: Expr, q: float) -> tuple[float, float]:
    """Return scores that the minimisers are below for p <= q - 1e-9, and above for p >= q + 1e-9."""

    def slope(p: float) -> Expr:
        p = sympy.Rational(p)
        return p * own.diff(S) + (1 - p) * other.diff(S)

    def last_falling(p: float, sign: int) -> float:
        form, low, high = sign * slope(p), -64.0, 64.0
        for _ in range(80):
            middle = (low + high) / 2
            falls = bool(bounds(form, {S: iv.mpf(middle)}).b < 0)
            low, high = (middle, high) if falls == (sign > 0) else (low, middle)
        return middle

    high, low = last_falling(q + CLEAR, 1), last_falling(q - CLEAR, -1)
    margin = (high - low) / 8
    if not margin > 0:
        raise NotProvedError("no threshold")
    for p in (q + CLEAR, 1.0):
        negative(slope(p), S, -inf, high - margin)
    for p in (q - CLEAR, 0.0):
        negative(-slope(p), S, low + margin, inf)
    return low + margin, high - margin


def order_of_actions(parts: Parts, q: float) -> Where:
    """Prove that the best of K + 1 actions has the largest score."""
    n_classes = len(parts.values)
    weights = [sympy.expand(last - exact(q) * parts.own).free_symbols for last in parts.last]
    if parts.other != 0 or weights != [set()]:
        raise NotProvedError("another weight of an action")
    negative(parts.own.diff(P), P, 0.0, 1.0, last_piece=True)
    return lambda best: {
        _behind(j): iv.mpf(0) if j == (n_classes if best is None else best) else iv.mpf([-inf, -1e-300])
        for j in range(n_classes + 1)
    }


def _behind(j: int) -> Symbol:
    """Return the symbol for how far log p_j is below the largest."""
    return Symbol(f"behind{j}", real=True)


def one_minimum(parts: Parts, q: float) -> Where:
    """Prove that the risk has one minimum on the simplex, which follows from eta."""
    own, other = sympy.factor_terms(parts.own.diff(P)), parts.other.diff(P)  # rounding must not hide a zero at p = 1
    negative(own, P, 0.0, 1.0, last_piece=True)
    for slope in (own, other):
        if slope != 0:
            negative(-slope.diff(P), P, 0.0, 1.0, last_piece=True)
    n_classes = len(parts.variables)
    fixed = sympy.expand(P * own + (1 - P) * other).diff(P)
    moving = sympy.expand((1 - n_classes * P) * (own - other)).diff(P)
    beta = -sympy.simplify(fixed / moving)
    if not (beta.is_Rational and beta <= 0):  # with beta > 0 the minimum may lie on a side of the simplex
        raise NotProvedError("no link")
    offset = bounds(beta, {})

    def where(best: int | None) -> Boxes:
        top = iv.mpf(q) + CLEAR
        others = iv.mpf([0, q - CLEAR if best is None else (1 - top).b])
        found = {}
        for j, p in enumerate(parts.variables):
            share = ((iv.mpf([top.a, 1]) if j == best else others) - offset) / (1 - n_classes * offset)
            found[p] = iv.mpf([max(share.a, 0), min(share.b, 1)])
        return found

    return where


def prove(loss: Loss, n_classes: int, cost: float) -> Certificate | None:
    """Return a proof that a loss is calibrated at a cost, from its code alone, or None where none is found.

    Parameters
    ----------
    loss : Loss
    n_classes : int
    cost : float

    Examples
    --------
    >>> from demur.losses import FunctionLoss
    >>> def brier(scores, y):
    ...     return (torch.softmax(scores, -1) - torch.nn.functional.one_hot(y, 3)).square().sum(-1)
    >>> prove(FunctionLoss(brier), 3, 0.2).method
    'one minimum on the simplex'
    >>> prove(FunctionLoss(lambda scores, y: brier(scores, y).clamp(max=1.99)), 3, 0.2)
    """
    n_outputs, q = loss.n_outputs(n_classes), 1 - cost
    rows = torch.zeros(n_classes, n_outputs, dtype=torch.float64)
    before, iv.prec = iv.prec, BITS
    try:
        graph = trace(lambda s, y: loss.forward(s, y, cost), rows, torch.arange(n_classes))
        parts = separated(graph, n_classes, n_outputs)
        scores = parts.scores
        if not parts.seen:
            method, where = "one score at a time", (one_score if n_outputs == 1 else one_by_one)(parts, q)
        elif parts.last:
            method, where = "the order of the actions", order_of_actions(parts, q)
            behind = {sympy.log(p): _behind(j) for j, p in enumerate(parts.variables)}
            scores = [score.xreplace(behind) for score in scores]
        else:
            method, where = "one minimum on the simplex", one_minimum(parts, q)
        rule = trace(lambda s: _decided(loss, s, cost), rows[:1])
        for best in (None, *range(n_classes)):
            reader = Reader(scores, [] if parts.last else parts.variables, where(best))
            label, reject, _ = reader.read(rule, reader.ids(scores, (1, n_outputs)))
            if reject is UNDECIDED or bool(reject) != (best is None) or best not in (None, label):
                raise NotProvedError("the rule decides in another way")

        def value(scores: Tensor, y: Tensor) -> Tensor:
            given = scores.T
            if parts.seen:
                given = torch.softmax(torch.stack(_computed(parts.raw, parts.seen)(*given)), 0)
            return torch.stack(_computed(parts.variables, parts.values)(*given))[y, torch.arange(len(y))]

        def decide(scores: Tensor) -> Iterable[Tensor]:
            return map(torch.cat, zip(*(rule(row[None]) for row in scores), strict=True))

        if not agrees(loss, n_classes, cost, value, decide):
            return None
    except (NotProvedError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError):
        return None  # what cannot be read or bounded
    finally:
        iv.prec = before
    return Certificate(
        method,
        f"At every eta with |max eta - {q:g}| >= {CLEAR:g}, every minimiser decides as Chow's rule.",
        (
            f"the structure was read from the {len(graph.graph.nodes)} operations of the loss; interval arithmetic "
            f"bounds its slopes, and evaluates the {len(rule.graph.nodes)} operations of the rule at the minimisers",
            f"the code agrees with the formulas at {N_SCORES} random scores, in a batch and one by one",
        ),
    )


def _decided(loss: Loss, scores: Tensor, cost: float) -> tuple[Tensor, Tensor, Tensor]:
    decision = loss.rule(scores, cost)
    return decision.label, decision.reject, decision.acceptance


def agrees(
    loss: Loss,
    n_classes: int,
    cost: float,
    value: Callable[[Tensor, Tensor], Tensor],
    decide: Callable[[Tensor], Iterable[Tensor]],
) -> bool:
    """Return whether a loss has the values of an argument, and its labels, rejections and acceptances."""
    size = torch.tensor([0.3, 1.0, 4.0, 6.0], dtype=torch.float64).repeat(N_SCORES // 4)[:, None]
    generator = torch.Generator().manual_seed(0)
    scores = size * torch.randn(N_SCORES, loss.n_outputs(n_classes), generator=generator, dtype=torch.float64)
    y = torch.arange(N_SCORES) % n_classes
    with torch.no_grad():
        pairs = [(loss.forward(scores, y, cost), value(scores, y))]
        pairs += zip(_decided(loss, scores, cost), decide(scores), strict=True)
    return all(torch.allclose(one.double(), other.double(), rtol=SAME, atol=SAME) for one, other in pairs)


NUMERIC = {
    "Softplus": torch.nn.functional.softplus,
    "Sigmoid": torch.sigmoid,
    "Tangent": lambda x, c: torch.exp(x.clamp(max=c)) * (1 + (x - c).clamp(min=0)),
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "Max": lambda *x: torch.maximum(*map(torch.as_tensor, x)),
    "Min": lambda *x: torch.minimum(*map(torch.as_tensor, x)),
}


def _computed(variables: Any, forms: list[Expr]) -> Callable[..., list[Tensor]]:
    """Return forms as a function of tensors."""
    computed: Callable[..., list[Tensor]] = sympy.lambdify(variables, forms, [NUMERIC])
    return computed
