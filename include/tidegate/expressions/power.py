"""`pow` to the last bit as Java's `StrictMath.pow`, which Spark uses: fdlibm's algorithm (e_pow.c, by Sun).

Other libraries round some results to the neighbouring double, and a condition compares them.
"""

from __future__ import annotations

import math
import struct

_LOG_STEPS = (
    *(5.99999999999994648725e-01, 4.28571428578550184252e-01, 3.33333329818377432918e-01),
    *(2.72728123808534006489e-01, 2.30660745775561754067e-01, 2.06975017800338417784e-01),
)
_EXP_STEPS = (
    *(1.66666666666666019037e-01, -2.77777777770155933842e-03, 6.61375632143793436117e-05),
    *(-1.65339022054652515390e-06, 4.13813679705723846039e-08),
)
_LN2, _LN2_H, _LN2_L = 6.93147180559945286227e-01, 6.93147182464599609375e-01, -1.90465429995776804525e-09
_CP, _CP_H, _CP_L = 9.61796693925975554329e-01, 9.61796700954437255859e-01, -7.02846165095275826516e-09
_IVLN2, _IVLN2_H, _IVLN2_L = 1.44269504088896338700e00, 1.44269502162933349609e00, 1.92596299112661746887e-08
_BASES = (1.0, 1.5)
_LOG2_H, _LOG2_L = (0.0, 5.84962487220764160156e-01), (0.0, 1.35003920212974897128e-08)
_OVERFLOW_TAIL = 8.0085662595372944372e-17  # -(1024 - log2(largest double + half a unit))


def java_pow(base: float, exponent: float) -> float:
    """Return the power of finite numbers, neither of them 0; `exponent` is whole if `base` is negative.

    Example: `java_pow(2.0, 0.5)` is 1.4142135623730951.
    """
    if exponent == 1:
        return base
    if exponent == -1:
        return 1 / base
    if exponent == 2:
        return base * base
    if exponent == 0.5:
        return math.sqrt(base)
    if abs(base) == 1:
        return base if exponent % 2 == 1 else 1.0
    sign = -1.0 if base < 0 and exponent % 2 == 1 else 1.0
    # such a power is 0 or infinite, unless the base is next to 1
    if abs(exponent) > 2**31 + 2**-21 * (2**32 - 1) and not 0x3FEFFFFF <= _high(abs(base)) <= 0x3FF00000:
        return sign * (math.inf if (abs(base) > 1) == (exponent > 0) else 0.0)
    if abs(exponent) >= 2**64 * (1 + 2**-20):
        return math.inf if (abs(base) > 1) == (exponent > 0) else 0.0
    return sign * _raised(*_log2(abs(base), exponent), exponent)


def _log2(base: float, exponent: float) -> tuple[float, float]:
    """Return the binary logarithm as a sum of two numbers, the first with half the digits."""
    if abs(exponent) > 2**31 + 2**-21 * (2**32 - 1):
        t = base - 1
        w = (t * t) * (0.5 - t * (0.3333333333333333333333 - t * 0.25))
        u, v = _IVLN2_H * t, t * _IVLN2_L - w * _IVLN2
        first = _upper(u + v)
        return first, v - (first - u)
    n = 0
    if _high(base) < 0x00100000:
        # a subnormal base has no exponent of its own: it is scaled up first
        base, n = base * 2.0**53, -53
    high = _high(base)
    n += (high >> 20) - 0x3FF
    fraction = high & 0xFFFFF
    high = fraction | 0x3FF00000
    k = int(0x3988E < fraction < 0xBB67A)
    if fraction >= 0xBB67A:
        n, high = n + 1, high - 0x00100000
    base = _with_high(base, high)
    u, v = base - _BASES[k], 1 / (base + _BASES[k])
    ss = u * v
    s_h = _upper(ss)
    t_h = _with_high(0.0, ((high >> 1) | 0x20000000) + 0x00080000 + (k << 18))
    t_l = base - (t_h - _BASES[k])
    s_l = v * ((u - s_h * t_h) - s_h * t_l)
    s2 = ss * ss
    r = s2 * s2 * _polynomial(s2, _LOG_STEPS) + s_l * (s_h + ss)
    s2 = s_h * s_h
    t_h = _upper(3.0 + s2 + r)
    t_l = r - ((t_h - 3.0) - s2)
    u, v = s_h * t_h, s_l * t_h + t_l * ss
    p_h = _upper(u + v)
    p_l = v - (p_h - u)
    z_h, z_l = _CP_H * p_h, _CP_L * p_h + p_l * _CP + _LOG2_L[k]
    first = _upper(((z_h + z_l) + _LOG2_H[k]) + n)
    return first, z_l - (((first - n) - _LOG2_H[k]) - z_h)


def _raised(first: float, second: float, exponent: float) -> float:
    """Return 2 to the power of exponent * (first + second)."""
    upper = _upper(exponent)
    p_l, p_h = (exponent - upper) * first + exponent * second, upper * first
    z = p_l + p_h
    if z > 1024 or (z == 1024 and p_l + _OVERFLOW_TAIL > z - p_h):
        return math.inf
    if z < -1075 or (z == -1075 and p_l <= z - p_h):
        return 0.0
    n = 0
    if abs(z) > 0.5:
        # 2^z as 2^n * 2^(z - n), since the polynomial is exact enough near 0 only
        n = math.floor(abs(z) + 0.5)
        n = -n if z < 0 else n
        p_h -= n
    t = _upper(p_l + p_h)
    u, v = t * _LN2_H, (p_l - (t - p_h)) * _LN2 + t * _LN2_L
    z = u + v
    w = v - (z - u)
    t = z * z
    t1 = z - t * _polynomial(t, _EXP_STEPS)
    r = (z * t1) / (t1 - 2.0) - (w + z * w)
    return math.ldexp(1.0 - (r - z), n)


def _polynomial(x: float, steps: tuple[float, ...]) -> float:
    result = steps[-1]
    for step in reversed(steps[:-1]):
        result = step + x * result
    return result


def _bits(value: float) -> int:
    bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return bits


def _high(value: float) -> int:
    return _bits(value) >> 32


def _number(bits: int) -> float:
    value: float = struct.unpack("<d", struct.pack("<q", bits))[0]
    return value


def _upper(value: float) -> float:
    """Return the value without the lower 32 bits of its mantissa."""
    return _number(_bits(value) & ~0xFFFFFFFF)


def _with_high(value: float, high: int) -> float:
    return _number((high << 32) | (_bits(value) & 0xFFFFFFFF))
