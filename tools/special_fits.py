"""Writes special_fits.h: polynomials for functions that ONNX has no operator for.

    python tools/special_fits.py | clang-format > src/lowering/special_fits.h

Each is the interpolation at Chebyshev's points of a smooth function on an interval, in a variable that runs from -1 to
1 there. The degree is the least that keeps the greatest error below 1e-12 of the greatest value.
"""

from __future__ import annotations

from collections.abc import Callable

import mpmath as mp

Function = Callable[[mp.mpf], mp.mpf]

mp.mp.dps = 34
TOLERANCE = mp.mpf("1e-12")
LEFT = mp.mpf(16) / 3  # 2/3 4^(3/2)
RIGHT = 2 * mp.sqrt(8) / 3  # 2/3 2^(3/2)


def chebyshev_coefficients(function: Function, low: mp.mpf, high: mp.mpf, degree: int) -> list[mp.mpf]:
    count = degree + 1
    angles = [mp.pi * (k + mp.mpf(1) / 2) / count for k in range(count)]
    values = [function((high + low) / 2 + (high - low) / 2 * mp.cos(angle)) for angle in angles]
    sums = [mp.fsum(v * mp.cos(j * a) for v, a in zip(values, angles, strict=True)) for j in range(count)]
    return [sums[0] / count] + [2 * total / count for total in sums[1:]]


def as_powers(coefficients: list[mp.mpf]) -> list[mp.mpf]:
    """Of a sum of Chebyshev polynomials those of 1, t, t², …"""
    previous, current = [mp.mpf(1)], [mp.mpf(0), mp.mpf(1)]
    total = [mp.mpf(0)] * len(coefficients)
    for coefficient in coefficients:
        for power, factor in enumerate(previous):
            total[power] += coefficient * factor
        doubled = [mp.mpf(0)] + [2 * factor for factor in current]
        for power, factor in enumerate(previous):
            doubled[power] -= factor
        previous, current = current, doubled
    return total


def fitted(function: Function, low: mp.mpf, high: mp.mpf) -> list[mp.mpf]:
    coefficients = chebyshev_coefficients(function, low, high, 40)
    greatest = max(abs(c) for c in coefficients)
    while mp.fsum(abs(c) for c in coefficients[-1:]) < TOLERANCE * greatest / 10:
        coefficients = coefficients[:-1]
    return as_powers(coefficients)


def euler(x: mp.mpf) -> mp.mpf:
    return mp.log(x / 2)


def bessel_phase(order: int, part: int) -> Function:
    """Amplitudes of cos and sin of x - (order / 2 + 1 / 4) π, by z = (8 / x)²."""

    def amplitude(z: mp.mpf) -> mp.mpf:
        z = max(z, mp.mpf("1e-8"))
        x = 8 / mp.sqrt(z)
        angle = x - (mp.mpf(order) / 2 + mp.mpf(1) / 4) * mp.pi
        j, y, root = mp.besselj(order, x), mp.bessely(order, x), mp.sqrt(mp.pi * x / 2)
        if part == 0:
            return root * (j * mp.cos(angle) + y * mp.sin(angle))
        return root * (y * mp.cos(angle) - j * mp.sin(angle)) / mp.sqrt(z)

    return amplitude


def airy_phase(part: int) -> Function:
    """Amplitudes of sin and cos of ζ + π/4 for Ai(-x), by z = (LEFT / ζ)²."""

    def amplitude(z: mp.mpf) -> mp.mpf:
        zeta = LEFT / mp.sqrt(max(z, mp.mpf("1e-8")))
        x = (3 * zeta / 2) ** (mp.mpf(2) / 3)
        angle = zeta + mp.pi / 4
        a, b, root = mp.airyai(-x), mp.airybi(-x), mp.sqrt(mp.pi) * x ** mp.mpf("0.25")
        if part == 0:
            return root * (a * mp.sin(angle) + b * mp.cos(angle))
        return root * (b * mp.sin(angle) - a * mp.cos(angle)) * zeta / LEFT

    return amplitude


def airy_right(z: mp.mpf) -> mp.mpf:
    zeta = RIGHT / max(z, mp.mpf("1e-6"))
    x = (3 * zeta / 2) ** (mp.mpf(2) / 3)
    return mp.airyai(x) * 2 * mp.sqrt(mp.pi) * x ** mp.mpf("0.25") * mp.exp(zeta)


def far(function: Callable[[mp.mpf], mp.mpf], start: int, sign: int) -> Function:
    """√x exp(∓x) f(x), by z = start / x."""
    return lambda z: (lambda x: mp.sqrt(x) * mp.exp(sign * x) * function(x))(start / max(z, mp.mpf("1e-4")))


def inverse_error(w: mp.mpf) -> mp.mpf:
    """erfinv(x) / x by w = -log(1 - x²)."""
    if w < mp.mpf("1e-12"):
        return mp.sqrt(mp.pi) / 2
    x = mp.sqrt(-mp.expm1(-w))
    guess = mp.sqrt(w) * mp.mpf("0.9") if w < 5 else mp.sqrt(w - mp.log(mp.pi * w) / 2)
    tail = mp.exp(-w) / (1 + x)  # 1 - x
    for _ in range(60):
        step = (mp.erfc(guess) - tail) * mp.sqrt(mp.pi) / 2 * mp.exp(guess * guess)
        guess += step / (1 - guess * step)  # Halley's step
        if abs(step) < mp.mpf("1e-25") * guess:
            break
    return guess / x


def root_of(x: mp.mpf) -> mp.mpf:
    return mp.sqrt(max(x, mp.mpf("1e-20")))


def scaled_complement(t: mp.mpf) -> mp.mpf:
    """erfc(x) exp(x²) / t by t = 2 / x; 1 / (2 √π) at 0."""
    if t < mp.mpf("1e-8"):
        return 1 / (2 * mp.sqrt(mp.pi))
    x = 2 / t
    return mp.erfc(x) * mp.exp(x * x) / t


FITS: dict[str, tuple[str, Function, mp.mpf, mp.mpf]] = {
    "ErrorNear": ("erf(x) / x by x²", lambda s: mp.erf(root_of(s)) / root_of(s), 0, 4),
    "ErrorFar": ("erfc(x) exp(x²) x / 2 by 2 / x", scaled_complement, 0, 1),
    "I0Near": ("exp(-x) I0(x)", lambda x: mp.exp(-x) * mp.besseli(0, x), 0, 8),
    "I0Far": ("√x exp(-x) I0(x) by 8 / x", far(lambda x: mp.besseli(0, x), 8, -1), 0, 1),
    "I1Near": ("exp(-x) I1(x) / x", lambda x: mp.exp(-x) * (mp.besseli(1, x) / x), 0, 8),
    "I1Far": ("√x exp(-x) I1(x) by 8 / x", far(lambda x: mp.besseli(1, x), 8, -1), 0, 1),
    "K0Near": (
        "K0(x) + log(x / 2) I0(x) by x²",
        lambda s: (lambda x: mp.besselk(0, x) + euler(x) * mp.besseli(0, x))(root_of(s)),
        0,
        4,
    ),
    "K0Far": ("√x exp(x) K0(x) by 2 / x", far(lambda x: mp.besselk(0, x), 2, 1), 0, 1),
    "K1Near": (
        "x (K1(x) - log(x / 2) I1(x)) by x²",
        lambda s: (lambda x: x * (mp.besselk(1, x) - euler(x) * mp.besseli(1, x)))(root_of(s)),
        0,
        4,
    ),
    "K1Far": ("√x exp(x) K1(x) by 2 / x", far(lambda x: mp.besselk(1, x), 2, 1), 0, 1),
    "J0Near": ("J0(x) by x²", lambda s: mp.besselj(0, root_of(s)), 0, 64),
    "J1Near": ("J1(x) / x by x²", lambda s: mp.besselj(1, root_of(s)) / root_of(s), 0, 64),
    "Y0Near": (
        "Y0(x) - 2/π log(x) J0(x) by x²",
        lambda s: (lambda x: mp.bessely(0, x) - 2 / mp.pi * mp.log(x) * mp.besselj(0, x))(root_of(s)),
        0,
        64,
    ),
    "Y1Near": (
        "(Y1(x) - 2/π (log(x) J1(x) - 1 / x)) / x by x²",
        lambda s: (lambda x: (mp.bessely(1, x) - 2 / mp.pi * (mp.log(x) * mp.besselj(1, x) - 1 / x)) / x)(root_of(s)),
        0,
        64,
    ),
    "Bessel0Cosine": ("by (8 / x)²", bessel_phase(0, 0), 0, 1),
    "Bessel0Sine": ("over 8 / x, by (8 / x)²", bessel_phase(0, 1), 0, 1),
    "Bessel1Cosine": ("by (8 / x)²", bessel_phase(1, 0), 0, 1),
    "Bessel1Sine": ("over 8 / x, by (8 / x)²", bessel_phase(1, 1), 0, 1),
    "AiryNear": ("Ai(x)", mp.airyai, -4, 2),
    "AiryRight": ("2√π x^¼ exp(ζ) Ai(x) by ζ(2) / ζ, where ζ = 2/3 x^(3/2)", airy_right, 0, 1),
    "AirySine": ("of ζ + π/4 in Ai(-x), by (ζ(4) / ζ)²", airy_phase(0), 0, 1),
    "AiryCosine": ("over ζ(4) / ζ, by (ζ(4) / ζ)²", airy_phase(1), 0, 1),
    "InverseErrorNear": ("erfinv(x) / x by w = -log(1 - x²)", inverse_error, 0, 5),
    "InverseErrorFar": ("by √w", lambda s: inverse_error(s * s), mp.mpf(2), mp.mpf("6.5")),
    "InverseErrorTail": ("by √w", lambda s: inverse_error(s * s), mp.mpf("6.5"), 28),
}


def written(name: str) -> str:
    meaning, function, low, high = FITS[name]
    numbers = [mp.nstr(c, 19, min_fixed=0, max_fixed=0) for c in fitted(function, mp.mpf(low), mp.mpf(high))]
    lines = ",\n    ".join(", ".join(numbers[i : i + 4]) for i in range(0, len(numbers), 4))
    bounds = f"{mp.nstr(mp.mpf(low), 4)}, {mp.nstr(mp.mpf(high), 4)}"
    table = f"inline constexpr double k{name}[] = {{\n    {lines}}};"
    return f"/// {meaning}\n{table}\ninline constexpr Fit k{name}Fit = {{{bounds}, k{name}}};\n"


def main() -> None:
    print(
        "// Written by tools/special_fits.py.\n#pragma once\n\n#include <span>\n\nnamespace exportguard::lowering {\n"
    )
    print("/// Σ coefficients[i] tⁱ, where t runs from -1 at `low` to 1 at `high`.")
    print("struct Fit {\n  double low;\n  double high;\n  std::span<const double> coefficients;\n};\n")
    for name in FITS:
        print(written(name), flush=True)
    print("}  // namespace exportguard::lowering")


if __name__ == "__main__":
    main()
