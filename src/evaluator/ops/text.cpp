// Strings: concatenation, splitting, normalization, matching, counting of n-grams.
#include <ATen/ops/broadcast_tensors.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>

#include "evaluator/call.h"
#include "evaluator/table.h"

namespace exportguard::evaluator {
namespace {

using at::Tensor;

std::vector<std::string> texts(const Call& call, const Tensor& numbers) {
  const Tensor dense = numbers.cpu().contiguous();
  const auto* first = dense.const_data_ptr<std::int64_t>();
  std::vector<std::string> result;
  for (std::int64_t i = 0; i < dense.numel(); ++i) result.push_back(call.strings().text(first[i]));
  return result;
}

Tensor numbered(const Call& call, const std::vector<std::string>& list, at::IntArrayRef sizes) {
  const Tensor result = at::empty(sizes, at::kLong);
  std::ranges::transform(list, result.mutable_data_ptr<std::int64_t>(),
                         [&](const std::string& text) { return call.strings().number(text); });
  return result.to(call.device());
}

void require_strings(const Call& call, std::size_t i) {
  call.require(call.dtype(i) == DType::kString, "its inputs must be strings");
}

void run_concat(Call& call) {
  require_strings(call, 0);
  require_strings(call, 1);
  const std::vector<Tensor> both = at::broadcast_tensors({call.input(0), call.input(1)});
  std::vector<std::string> left = texts(call, both[0]);
  const std::vector<std::string> right = texts(call, both[1]);
  for (std::size_t i = 0; i < left.size(); ++i) left[i] += right[i];
  call.result(numbered(call, left, both[0].sizes()), DType::kString);
}

// At most `most` cuts; without a delimiter at runs of white space, of which those at the ends count for nothing.
std::vector<std::string> parts_of(const std::string& text, const std::string& delimiter, std::int64_t most) {
  std::vector<std::string> parts;
  const bool is_blank = delimiter.empty();
  const char* blanks = " \t\n\r\f\v";
  std::size_t at = is_blank ? text.find_first_not_of(blanks) : 0;
  while (at != std::string::npos && static_cast<std::int64_t>(parts.size()) < most) {
    const std::size_t end = is_blank ? text.find_first_of(blanks, at) : text.find(delimiter, at);
    if (end == std::string::npos) break;
    parts.push_back(text.substr(at, end - at));
    at = is_blank ? text.find_first_not_of(blanks, end) : end + delimiter.size();
  }
  if (at == std::string::npos) return parts;
  std::string rest = text.substr(at);
  if (is_blank) rest.erase(rest.find_last_not_of(blanks) + 1);
  parts.push_back(rest);
  return parts;
}

void run_split(Call& call) {
  require_strings(call, 0);
  const std::int64_t most = call.integer("maxsplit", std::numeric_limits<std::int64_t>::max());
  const std::string delimiter = call.text("delimiter", "");

  std::vector<std::vector<std::string>> rows;
  std::size_t width = 0;
  for (const std::string& text : texts(call, call.input(0))) {
    const bool is_nothing = text.empty() && delimiter.empty();
    rows.push_back(is_nothing ? std::vector<std::string>() : parts_of(text, delimiter, most));
    width = std::max(width, rows.back().size());
  }

  std::vector<std::string> all;
  const Tensor counts = at::empty(call.input(0).sizes(), at::kLong);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    counts.mutable_data_ptr<std::int64_t>()[i] = static_cast<std::int64_t>(rows[i].size());
    rows[i].resize(width);
    all.insert(all.end(), rows[i].begin(), rows[i].end());
  }

  std::vector<std::int64_t> sizes = call.input(0).sizes().vec();
  sizes.push_back(static_cast<std::int64_t>(width));
  call.result(numbered(call, all, sizes), DType::kString);
  call.result(counts.to(call.device()));
}

// Letters of ASCII; others stay as they are.
std::string cased(std::string text, const std::string& action) {
  for (char& c : text) {
    if (action == "LOWER" && c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (action == "UPPER" && c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return text;
}

// Words to be left out go first, then the case changes. What is left of nothing is one empty string.
void run_normalizer(Call& call) {
  require_strings(call, 0);
  const Tensor& x = call.input(0);
  call.require(x.dim() == 1 || (x.dim() == 2 && x.size(0) == 1), "its input must be a list of strings");

  const std::string action = call.text("case_change_action", "NONE");
  const bool is_case_sensitive = call.flag("is_case_sensitive");
  std::set<std::string> stopped;
  for (const std::string& word : call.texts("stopwords")) {
    stopped.insert(is_case_sensitive ? word : cased(word, "LOWER"));
  }

  std::vector<std::string> kept;
  for (const std::string& word : texts(call, x)) {
    const bool is_stopped = stopped.contains(is_case_sensitive ? word : cased(word, "LOWER"));
    if (!is_stopped) kept.push_back(cased(word, action));
  }
  if (kept.empty()) kept.emplace_back();

  const auto count = static_cast<std::int64_t>(kept.size());
  const std::vector<std::int64_t> sizes =
      x.dim() == 1 ? std::vector<std::int64_t>{count} : std::vector<std::int64_t>{1, count};
  call.result(numbered(call, kept, sizes), DType::kString);
}

// In the syntax of ECMAScript, which agrees with RE2's on what models use.
void run_full_match(Call& call) {
  require_strings(call, 0);
  const std::regex pattern(call.text("pattern", ""));
  const std::vector<std::string> list = texts(call, call.input(0));
  const Tensor result = at::empty(call.input(0).sizes(), at::kBool);
  for (std::size_t i = 0; i < list.size(); ++i) {
    call.require(list[i].size() < 4096, "a string is too long to be matched");
    result.mutable_data_ptr<bool>()[i] = std::regex_match(list[i], pattern);
  }
  call.result(result.to(call.device()));
}

// ---------------------------------------------------------------- TfIdfVectorizer

using Gram = std::vector<std::string>;

struct Pool {
  std::vector<Gram> grams;
};

// Pool entries stand by length: `ngram_counts` says where those of each length start.
Pool pool_of(const Call& call) {
  std::vector<std::string> words = call.texts("pool_strings");
  for (const std::int64_t number : call.integers("pool_int64s")) words.push_back(std::to_string(number));
  const std::vector<std::int64_t> starts = call.integers("ngram_counts");
  Pool pool;
  for (std::size_t n = 0; n < starts.size(); ++n) {
    const std::size_t end = n + 1 < starts.size() ? static_cast<std::size_t>(starts[n + 1]) : words.size();
    call.require(starts[n] >= 0 && end <= words.size(), "ngram_counts is beyond the pool");
    for (std::size_t at = static_cast<std::size_t>(starts[n]); at + n + 1 <= end; at += n + 1) {
      pool.grams.emplace_back(words.begin() + static_cast<std::ptrdiff_t>(at),
                              words.begin() + static_cast<std::ptrdiff_t>(at + n + 1));
    }
  }
  return pool;
}

std::vector<std::string> words_of(const Call& call, const Tensor& row) {
  if (call.dtype(0) == DType::kString) return texts(call, row);
  const Tensor dense = row.to(at::kCPU, at::kLong).contiguous();
  std::vector<std::string> words;
  for (std::int64_t i = 0; i < dense.numel(); ++i)
    words.push_back(std::to_string(dense.const_data_ptr<std::int64_t>()[i]));
  return words;
}

// How often each entry of the pool occurs, its words up to `max_skip_count` apart from each other.
void count(const Call& call, const std::map<Gram, std::size_t>& index, const std::vector<std::string>& words,
           std::vector<double>& counts) {
  const std::int64_t least = call.integer("min_gram_length");
  const std::int64_t most = call.integer("max_gram_length");
  const auto size = static_cast<std::int64_t>(words.size());
  for (std::int64_t skip = 1; skip <= std::min(call.integer("max_skip_count") + 1, std::max<std::int64_t>(size, 1));
       ++skip) {
    for (std::int64_t length = least; length <= std::min(most, size); ++length) {
      if (length == 1 && skip > 1) continue;  // one word has nothing to skip
      for (std::int64_t start = 0; start + (length - 1) * skip < size; ++start) {
        Gram gram;
        for (std::int64_t k = 0; k < length; ++k) gram.push_back(words[static_cast<std::size_t>(start + k * skip)]);
        const auto found = index.find(gram);
        if (found != index.end()) counts[found->second] += 1;
      }
    }
  }
}

void run_tf_idf(Call& call) {
  const Pool pool = pool_of(call);
  const std::vector<std::int64_t> places = call.integers("ngram_indexes");
  const std::vector<double> weights = call.numbers("weights");
  call.require(places.size() == pool.grams.size(), "ngram_indexes must have an entry for each of the pool");

  std::map<Gram, std::size_t> index;
  for (std::size_t i = 0; i < pool.grams.size(); ++i) index.emplace(pool.grams[i], i);
  const std::int64_t width = places.empty() ? 0 : std::ranges::max(places) + 1;

  const Tensor& x = call.input(0);
  call.require(x.dim() == 1 || x.dim() == 2, "its input must have rank 1 or 2");
  const std::int64_t rows = x.dim() == 2 ? x.size(0) : 1;
  call.require_room({rows, width});

  const std::string mode = call.text("mode", "");
  const Tensor result = at::empty({rows, width}, at::kFloat).zero_();
  for (std::int64_t row = 0; row < rows; ++row) {
    std::vector<double> counts(pool.grams.size());
    count(call, index, words_of(call, x.dim() == 2 ? x.select(0, row) : x), counts);
    for (std::size_t i = 0; i < counts.size(); ++i) {
      call.require(places[i] >= 0, "an entry of ngram_indexes is negative");
      const double weight = i < weights.size() ? weights[i] : 1.0;
      const double value =
          mode == "TF" ? counts[i] : (counts[i] > 0 ? weight : 0) * (mode == "TFIDF" ? counts[i] : 1.0);
      result.mutable_data_ptr<float>()[row * width + places[i]] = static_cast<float>(value);
    }
  }
  call.result((x.dim() == 2 ? result : result.select(0, 0)).to(call.device()));
}

}  // namespace

void populate_text(OperatorTable& table) {
  table.add("StringConcat", run_concat);
  table.add("StringSplit", run_split);
  table.add("StringNormalizer", run_normalizer);
  table.add("RegexFullMatch", run_full_match);
  table.add("TfIdfVectorizer", run_tf_idf);
}

}  // namespace exportguard::evaluator
