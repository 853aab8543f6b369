#include "engine/sglang_grpc/logprobs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "engine/sglang_grpc/lenient_json.hpp"

namespace fairlead::engine::sglang_grpc {
namespace {

std::unexpected<Error> protocol_error(std::string message) {
  return fail(ErrorCode::EngineProtocol, "Generate: " + std::move(message));
}

/// `[logprob, id, text]`; the text is not used.
struct Entry {
  std::optional<float> logprob;  ///< Finite.
  std::optional<TokenId> id;
};

float normal_logprob(double value) {
  return value >= kLowestLogprob ? static_cast<float>(value) : kLowestLogprob;
}

/// Reads the elements of a list up to its end, which is taken.
bool read_entry(LenientJson& json, Entry& out) {
  out = {};
  if (!json.take('[')) {
    return json.skip();  // null: no entry
  }
  if (json.take(']')) {
    return true;
  }
  for (int i = 0;; ++i) {
    std::optional<double> logprob;
    std::optional<std::int64_t> id;
    if (i == 0) {
      logprob = json.number();
    } else if (i == 1) {
      id = json.integer();
    }
    if (logprob) {
      out.logprob = normal_logprob(*logprob);
    } else if (id) {
      if (*id >= 0 && *id <= std::numeric_limits<std::int32_t>::max()) {
        out.id = static_cast<TokenId>(*id);
      }
    } else if (!json.skip()) {
      return false;
    }
    if (!json.take(',')) {
      return json.take(']');
    }
  }
}

/// A position's candidates: a list of entries, or null.
bool read_candidates(LenientJson& json, std::uint32_t limit, std::vector<Candidate>& out,
                     std::uint32_t& rank_of, TokenId id) {
  out.clear();
  rank_of = 0;
  if (!json.take('[')) {
    return json.skip();
  }
  if (json.take(']')) {
    return true;
  }
  for (std::uint32_t rank = 1;; ++rank) {
    Entry entry;
    if (!read_entry(json, entry)) {
      return false;
    }
    if (entry.id && entry.logprob) {
      if (*entry.id == id && rank_of == 0) {
        rank_of = rank;
      }
      if (rank <= limit) {
        out.push_back({*entry.id, *entry.logprob, rank});
      }
    }
    if (!json.take(',')) {
      return json.take(']');
    }
  }
}

/// Opens a list of `count` elements and skips the first `from`.
bool open_list(LenientJson& json, std::size_t from) {
  if (!json.take('[')) {
    return false;
  }
  for (std::size_t i = 0; i < from; ++i) {
    if (!json.skip() || !json.take(',')) {
      return false;
    }
  }
  return true;
}

/// Fills one entry of `out` per id from both lists, of which the first `skip` elements are skipped.
Result<> fill(const LogprobLists& lists, std::size_t skip, std::size_t skip_top,
              std::span<const TokenId> ids, std::uint32_t limit, std::span<TokenLogprob> out) {
  LenientJson tokens(lists.tokens);
  LenientJson top(lists.top);
  const bool with_top = !lists.top.empty();
  bool good = open_list(tokens, skip) && (!with_top || open_list(top, skip_top));
  for (std::size_t i = 0; good && i < ids.size(); ++i) {
    TokenLogprob& to = out[i];
    Entry entry;
    good = (i == 0 || tokens.take(',')) && read_entry(tokens, entry);
    to.candidates.clear();
    to.rank = 0;
    if (good && with_top) {
      good =
          (i == 0 || top.take(',')) && read_candidates(top, limit, to.candidates, to.rank, ids[i]);
    }
    to.missing = !entry.logprob || entry.id != ids[i];
    to.logprob = to.missing ? kLowestLogprob : *entry.logprob;
    if (to.missing) {
      to.candidates.clear();
      to.rank = 0;
    }
  }
  return good ? Result<>() : protocol_error("a list of logprobs could not be read");
}

/// How many of a list's elements come before the new ones; nothing when its length fits neither.
std::optional<std::size_t> before_new(std::string_view list, std::size_t fresh, std::size_t total) {
  const std::optional<std::size_t> size = list_size(list);
  if (size == total) {
    return total - fresh;
  }
  return size == fresh ? std::optional<std::size_t>(0) : std::nullopt;
}

std::string size_text(std::string_view list) {
  const std::optional<std::size_t> size = list_size(list);
  return size ? fmt::format("{}", *size) : std::string("no");
}

}  // namespace

Result<> read_output_logprobs(const LogprobLists& lists, std::span<const TokenId> ids,
                              std::size_t total, std::uint32_t candidates,
                              std::vector<TokenLogprob>& out) {
  const std::optional<std::size_t> skip = before_new(lists.tokens, ids.size(), total);
  LogprobLists used = lists;
  std::optional<std::size_t> skip_top = 0;
  if (candidates > 0) {
    skip_top = before_new(lists.top, ids.size(), total);
  } else {
    used.top = {};
  }
  if (!skip || !skip_top) {
    return protocol_error(fmt::format("{} logprobs and {} candidate lists for {} new of {} tokens",
                                      size_text(lists.tokens), size_text(lists.top), ids.size(),
                                      total));
  }
  if (out.size() < ids.size()) {
    out.resize(ids.size());
  }
  return fill(used, *skip, *skip_top, ids, candidates, out);
}

Result<> read_prompt_logprobs(const LogprobLists& lists, std::span<const TokenId> prompt,
                              std::uint32_t candidates, std::vector<TokenLogprob>& out) {
  const std::size_t count = prompt.size();
  const auto left_out = [&](std::string_view list) -> std::optional<std::size_t> {
    const std::optional<std::size_t> size = list_size(list);
    if (size == count) {
      return 0;
    }
    return size == count - 1 ? std::optional<std::size_t>(1) : std::nullopt;
  };
  const std::optional<std::size_t> first = left_out(lists.tokens);
  LogprobLists used = lists;
  std::optional<std::size_t> first_top = first;
  if (candidates > 0) {
    first_top = left_out(lists.top);
  } else {
    used.top = {};
  }
  if (!first || !first_top) {
    return protocol_error(fmt::format("{} logprobs and {} candidate lists for {} prompt tokens",
                                      size_text(lists.tokens), size_text(lists.top), count));
  }
  if (out.size() < count) {
    out.resize(count);
  }
  // The first one has none, whatever is said of it: nothing that anybody would miss.
  out.front() = {};
  if (count == 1) {
    return {};
  }
  return fill(used, 1 - *first, 1 - *first_top, prompt.subspan(1), candidates,
              std::span(out).subspan(1));
}

}  // namespace fairlead::engine::sglang_grpc
