#include "python/size_conditions.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

namespace exportguard::python {
namespace {

constexpr std::size_t kLanes = 256;  // sizes that are computed at once

using Numbers = std::array<std::int64_t, kLanes>;

/// What is known of a number: Python raises where it is undefined, and goes on with more than 64 bits where it is
/// beyond.
enum class State : std::uint8_t { Known, Undefined, Beyond };

/// The numbers of one step, of which those that are known count: integers, or floats where there are any.
struct Column {
  Numbers numbers{};
  std::vector<double> reals;
  std::array<State, kLanes> states{};

  [[nodiscard]] bool is_real() const { return !reals.empty(); }

  /// As Python makes a float of an integer, to the nearest one.
  [[nodiscard]] double real(std::size_t lane) const {
    return is_real() ? reals[lane] : static_cast<double>(numbers[lane]);
  }
};

enum class Operation : std::uint8_t {
  Number,
  Real,
  Size,
  Add,
  Multiply,
  Divide,
  FloorDivide,
  Modulo,
  Largest,
  Smallest,
  Equal,
  Differs,
  Less,
  AtMost,
  ToReal,
  Round,
  Ceil,
  Floor,
  Truncate,
  All,
  Any
};

/// An operation on the steps in front of it; `number` is that of a number, or the place of a size.
struct Step {
  Operation operation = Operation::Number;
  std::vector<std::size_t> operands;
  std::int64_t number = 0;
};

using GivenStep = std::tuple<std::string, std::vector<std::size_t>, std::variant<std::int64_t, double>>;

constexpr std::size_t kAnyNumber = std::numeric_limits<std::size_t>::max();

/// An operation by its name, and how many operands it has.
struct NamedOperation {
  std::string_view name;
  Operation operation;
  std::size_t operands;
};

constexpr std::array<NamedOperation, 21> kOperations{{
    {"number", Operation::Number, 0},  {"real", Operation::Real, 0},        {"size", Operation::Size, 0},
    {"+", Operation::Add, 2},          {"*", Operation::Multiply, 2},       {"/", Operation::Divide, 2},
    {"//", Operation::FloorDivide, 2}, {"%", Operation::Modulo, 2},         {"max", Operation::Largest, 2},
    {"min", Operation::Smallest, 2},   {"==", Operation::Equal, 2},         {"!=", Operation::Differs, 2},
    {"<", Operation::Less, 2},         {"<=", Operation::AtMost, 2},        {"float", Operation::ToReal, 1},
    {"round", Operation::Round, 1},    {"ceil", Operation::Ceil, 1},        {"floor", Operation::Floor, 1},
    {"trunc", Operation::Truncate, 1}, {"and", Operation::All, kAnyNumber}, {"or", Operation::Any, kAnyNumber},
}};

const NamedOperation& operation_of(const std::string& name) {
  const auto* const found =
      std::find_if(kOperations.begin(), kOperations.end(), [&](const NamedOperation& one) { return name == one.name; });
  if (found == kOperations.end()) throw std::invalid_argument("a condition on sizes has no operation " + name);
  return *found;
}

bool is_comparison(Operation operation) {
  return operation == Operation::Equal || operation == Operation::Differs || operation == Operation::Less ||
         operation == Operation::AtMost;
}

template <typename Number>
bool compared(Operation operation, Number a, Number b) {
  switch (operation) {
    case Operation::Equal:
      return a == b;
    case Operation::Differs:
      return a != b;
    case Operation::Less:
      return a < b;
    case Operation::AtMost:
      return a <= b;
    default:
      throw std::logic_error("no comparison");
  }
}

/// Python's max and min, which give the first one unless the second is beyond it.
template <typename Number>
Number extreme(Operation operation, Number a, Number b) {
  const bool is_second = operation == Operation::Largest ? b > a : b < a;
  return is_second ? b : a;
}

/// Python's `a // b` or `a % b`, which leaves a rest of the divisor's sign.
State divided(Operation operation, std::int64_t a, std::int64_t b, std::int64_t& result) {
  if (b == 0) return State::Undefined;
  if (b == -1 && a == std::numeric_limits<std::int64_t>::min()) return State::Beyond;
  const std::int64_t quotient = a / b, rest = a % b;
  const bool is_below = rest != 0 && (rest < 0) != (b < 0);
  result = operation == Operation::FloorDivide ? quotient - (is_below ? 1 : 0) : rest + (is_below ? b : 0);
  return State::Known;
}

State of_integers(Operation operation, std::int64_t a, std::int64_t b, std::int64_t& result) {
  switch (operation) {
    case Operation::Add:
      return __builtin_add_overflow(a, b, &result) ? State::Beyond : State::Known;
    case Operation::Multiply:
      return __builtin_mul_overflow(a, b, &result) ? State::Beyond : State::Known;
    case Operation::FloorDivide:
    case Operation::Modulo:
      return divided(operation, a, b, result);
    case Operation::Largest:
    case Operation::Smallest:
      result = extreme(operation, a, b);
      return State::Known;
    default:
      result = compared(operation, a, b) ? 1 : 0;
      return State::Known;
  }
}

State of_reals(Operation operation, double a, double b, double& result) {
  switch (operation) {
    case Operation::Add:
      result = a + b;
      return State::Known;
    case Operation::Multiply:
      result = a * b;
      return State::Known;
    case Operation::Divide:
      result = b == 0 ? 0 : a / b;
      return b == 0 ? State::Undefined : State::Known;  // Python raises
    default:
      result = extreme(operation, a, b);
      return State::Known;
  }
}

/// An integer of a float: Python raises for one that is not finite.
State rounded(Operation operation, double real, std::int64_t& result) {
  constexpr double kFarthest = 4611686018427387904.0;  // 2^62
  if (!std::isfinite(real)) return State::Undefined;
  if (std::abs(real) >= kFarthest) return State::Beyond;
  switch (operation) {
    case Operation::Round:  // to the nearest one, to the even one of two
      result = static_cast<std::int64_t>(std::nearbyint(real));
      break;
    case Operation::Ceil:
      result = static_cast<std::int64_t>(std::ceil(real));
      break;
    case Operation::Floor:
      result = static_cast<std::int64_t>(std::floor(real));
      break;
    default:
      result = static_cast<std::int64_t>(real);
  }
  return State::Known;
}

/// Whether a float has the integer exactly, so that what is computed of both is rounded once.
bool is_exact(std::int64_t number) {
  constexpr std::int64_t kExact = std::int64_t{1} << 53;
  return number >= -kExact && number <= kExact;
}

/// A condition on sizes as a row of steps, the last of which is its answer.
class SizeCondition {
 public:
  SizeCondition(const std::vector<GivenStep>& steps, std::size_t sizes, py::function at_one)
      : at_one_(std::move(at_one)), sizes_(sizes), columns_(steps.size()) {
    if (steps.empty()) throw std::invalid_argument("a condition on sizes has no step");
    for (const GivenStep& step : steps) add(step);
    if (columns_.back().is_real()) throw std::invalid_argument("a condition on sizes ends in a number");
  }

  [[nodiscard]] std::size_t sizes() const { return sizes_; }

  /// The answers for the first `count` of these sizes.
  const Column& answers(const std::vector<Numbers>& sizes, std::size_t count) {
    for (std::size_t place = 0; place < steps_.size(); ++place) {
      const Step& step = steps_[place];
      Column& into = columns_[place];
      switch (step.operation) {
        case Operation::Number:
        case Operation::Real:  // stay as they are
          break;
        case Operation::Size:
          std::copy_n(sizes[static_cast<std::size_t>(step.number)].begin(), count, into.numbers.begin());
          break;
        case Operation::All:
        case Operation::Any:
          decide(step, into, count);
          break;
        case Operation::ToReal:
        case Operation::Round:
        case Operation::Ceil:
        case Operation::Floor:
        case Operation::Truncate:
          convert(step, into, count);
          break;
        default:
          combine(step, into, count);
      }
    }
    return columns_.back();
  }

  /// What Python says, where numbers have more than 64 bits.
  [[nodiscard]] py::object in_python(const std::vector<std::int64_t>& point) const { return at_one_(point); }

 private:
  void add(const GivenStep& given) {
    const auto& [name, operands, number] = given;
    const NamedOperation& named = operation_of(name);
    const std::size_t place = steps_.size();
    const bool is_real_number = std::holds_alternative<double>(number);
    const std::int64_t whole = is_real_number ? 0 : std::get<std::int64_t>(number);
    const bool is_after =
        std::all_of(operands.begin(), operands.end(), [&](std::size_t operand) { return operand < place; });
    const bool is_there =
        named.operation != Operation::Size || (whole >= 0 && static_cast<std::uint64_t>(whole) < sizes_);
    const bool is_complete = named.operands == kAnyNumber || operands.size() == named.operands;
    if (!is_after || !is_there || !is_complete || is_real_number != (named.operation == Operation::Real)) {
      throw std::invalid_argument("a step of a condition on sizes names what is not in front of it");
    }
    Column& column = columns_[place];
    column.numbers.fill(whole);
    if (has_reals(named.operation, operands)) column.reals.resize(kLanes);
    if (is_real_number) std::fill(column.reals.begin(), column.reals.end(), std::get<double>(number));
    steps_.push_back(Step{named.operation, operands, whole});
  }

  /// Whether the results of an operation are floats; it takes some of both kinds where Python converts the integers.
  [[nodiscard]] bool has_reals(Operation operation, const std::vector<std::size_t>& operands) const {
    const auto is_real = [&](std::size_t operand) { return columns_[operand].is_real(); };
    const bool is_any = std::any_of(operands.begin(), operands.end(), is_real);
    const bool is_every = std::all_of(operands.begin(), operands.end(), is_real);
    switch (operation) {
      case Operation::Real:
      case Operation::Divide:
      case Operation::ToReal:
        return true;
      case Operation::Add:
      case Operation::Multiply:
        return is_any;
      case Operation::Largest:
      case Operation::Smallest:
        if (is_any != is_every) throw std::invalid_argument("an extreme of integers and floats");
        return is_any;
      case Operation::FloorDivide:
      case Operation::Modulo:
      case Operation::All:
      case Operation::Any:
        if (is_any) throw std::invalid_argument("an operation of integers has floats");
        return false;
      default:
        return false;
    }
  }

  void combine(const Step& step, Column& into, std::size_t count) {
    const Column &a = columns_[step.operands[0]], &b = columns_[step.operands[1]];
    const bool is_of_reals = a.is_real() || b.is_real();
    for (std::size_t lane = 0; lane < count; ++lane) {
      into.states[lane] = std::max(a.states[lane], b.states[lane]);
      if (into.states[lane] != State::Known) continue;
      const bool is_once_rounded =
          (a.is_real() || is_exact(a.numbers[lane])) && (b.is_real() || is_exact(b.numbers[lane]));
      if (is_of_reals && is_comparison(step.operation)) {  // Python compares an integer as it is
        into.numbers[lane] = compared(step.operation, a.real(lane), b.real(lane)) ? 1 : 0;
        if (!is_once_rounded) into.states[lane] = State::Beyond;
      } else if (into.is_real()) {
        into.states[lane] = of_reals(step.operation, a.real(lane), b.real(lane), into.reals[lane]);
        const bool is_of_integers = !is_of_reals && into.states[lane] == State::Known;
        if (is_of_integers && !is_once_rounded) into.states[lane] = State::Beyond;  // Python divides them as they are
      } else {
        into.states[lane] = of_integers(step.operation, a.numbers[lane], b.numbers[lane], into.numbers[lane]);
      }
    }
  }

  void convert(const Step& step, Column& into, std::size_t count) {
    const Column& given = columns_[step.operands.front()];
    for (std::size_t lane = 0; lane < count; ++lane) {
      into.states[lane] = given.states[lane];
      if (given.states[lane] != State::Known) continue;
      if (into.is_real()) {
        into.reals[lane] = given.real(lane);
      } else if (given.is_real()) {
        into.states[lane] = rounded(step.operation, given.reals[lane], into.numbers[lane]);
      } else {
        into.numbers[lane] = given.numbers[lane];
      }
    }
  }

  /// As Python does from left to right: what stands behind the one that decides does not count.
  void decide(const Step& step, Column& into, std::size_t count) {
    const std::int64_t deciding = step.operation == Operation::Any ? 1 : 0;
    for (std::size_t lane = 0; lane < count; ++lane) {
      into.numbers[lane] = 1 - deciding;
      into.states[lane] = State::Known;
      for (const std::size_t operand : step.operands) {
        const Column& part = columns_[operand];
        if (part.states[lane] != State::Known || part.numbers[lane] == deciding) {
          into.states[lane] = part.states[lane];
          into.numbers[lane] = deciding;
          break;
        }
      }
    }
  }

  py::function at_one_;
  std::size_t sizes_;
  std::vector<Step> steps_;
  std::vector<Column> columns_;
};

/// What each condition is to say of sizes: an answer, or that it has none.
using Wanted = std::optional<bool>;

/// Goes through sizes and finds those of which every condition says what is wanted.
class SizeSearch {
 public:
  /// `spans` are those of each size: all combinations of them, that of the last changing first, or one row after the
  /// other.
  SizeSearch(std::vector<std::shared_ptr<SizeCondition>> conditions, std::vector<std::vector<std::int64_t>> spans,
             Wanted wanted, bool is_combined)
      : conditions_(std::move(conditions)),
        spans_(std::move(spans)),
        wanted_(wanted),
        is_combined_(is_combined),
        places_(spans_.size(), 0),
        sizes_(spans_.size()) {
    const auto fits = [&](const std::shared_ptr<SizeCondition>& one) { return one && one->sizes() == spans_.size(); };
    const auto is_as_long = [&](const auto& span) { return span.size() == spans_.front().size(); };
    if (spans_.empty() || !std::all_of(conditions_.begin(), conditions_.end(), fits) ||
        (!is_combined_ && !std::all_of(spans_.begin(), spans_.end(), is_as_long))) {
      throw std::invalid_argument("sizes of other conditions");
    }
    is_over_ = std::any_of(spans_.begin(), spans_.end(), [](const auto& span) { return span.empty(); });
  }

  /// The next ones that are found; none where there are no more.
  py::list more() {
    py::list found;
    while (found.empty() && !is_over_) {
      const std::size_t count = fill();
      for (const std::size_t lane : kept(count)) {
        py::tuple point(spans_.size());
        for (std::size_t size = 0; size < spans_.size(); ++size) point[size] = py::int_(sizes_[size][lane]);
        found.append(std::move(point));
      }
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    }
    return found;
  }

 private:
  /// Takes the next sizes, and says how many.
  std::size_t fill() {
    std::size_t count = 0;
    for (; count < kLanes && !is_over_; ++count) {
      for (std::size_t size = 0; size < spans_.size(); ++size) sizes_[size][count] = spans_[size][places_[size]];
      step();
    }
    return count;
  }

  void step() {
    if (!is_combined_) {
      for (std::size_t& place : places_) ++place;
      is_over_ = places_.front() == spans_.front().size();
      return;
    }
    std::size_t size = spans_.size();
    while (size > 0 && ++places_[size - 1] == spans_[size - 1].size()) places_[--size] = 0;
    is_over_ = size == 0;
  }

  [[nodiscard]] std::vector<std::size_t> kept(std::size_t count) const {
    std::vector<std::size_t> lanes(count);
    for (std::size_t lane = 0; lane < count; ++lane) lanes[lane] = lane;
    for (const std::shared_ptr<SizeCondition>& condition : conditions_) {
      if (lanes.empty()) break;
      const Column& answers = condition->answers(sizes_, count);
      lanes.erase(std::remove_if(lanes.begin(), lanes.end(),
                                 [&](std::size_t lane) { return !is_wanted(*condition, answers, lane); }),
                  lanes.end());
    }
    return lanes;
  }

  [[nodiscard]] bool is_wanted(const SizeCondition& condition, const Column& answers, std::size_t lane) const {
    switch (answers.states[lane]) {
      case State::Known:
        return wanted_.has_value() && (answers.numbers[lane] != 0) == *wanted_;
      case State::Undefined:
        return !wanted_.has_value();
      case State::Beyond:
        break;
    }
    std::vector<std::int64_t> point(spans_.size());
    for (std::size_t size = 0; size < spans_.size(); ++size) point[size] = sizes_[size][lane];
    const py::object answer = condition.in_python(point);
    return wanted_.has_value() ? answer.is(py::bool_(*wanted_)) : answer.is_none();
  }

  std::vector<std::shared_ptr<SizeCondition>> conditions_;
  std::vector<std::vector<std::int64_t>> spans_;
  Wanted wanted_;
  bool is_combined_;
  bool is_over_ = false;
  std::vector<std::size_t> places_;
  std::vector<Numbers> sizes_;
};

}  // namespace

void bind_size_conditions(py::module_& m) {
  py::class_<SizeCondition, std::shared_ptr<SizeCondition>>(
      m, "SizeCondition", "A condition on sizes that is looked at for many of them at once.")
      .def(
          py::init<const std::vector<GivenStep>&, std::size_t, py::function>(), py::arg("steps"), py::arg("sizes"),
          py::arg("at_one"),
          "`steps` are operations, the places of their operands, and a number; `at_one` says what the condition is for "
          "one list of sizes where 64 bits do not hold a number.");
  py::class_<SizeSearch>(m, "SizeSearch", "Sizes of which every condition says what is wanted.")
      .def(
          py::init<std::vector<std::shared_ptr<SizeCondition>>, std::vector<std::vector<std::int64_t>>, Wanted, bool>(),
          py::arg("conditions"), py::arg("spans"), py::arg("wanted"), py::arg("is_combined"),
          "`wanted` is an answer, or None for sizes that have none. All combinations of `spans`, or one row after the "
          "other.")
      .def("more", &SizeSearch::more, "The next that are found, none where there are no more.");
}

}  // namespace exportguard::python
