#include "api/openai/token_columns.hpp"

#include <algorithm>

#include "base/json.hpp"

namespace fairlead::api::openai {
namespace {

// Pieces that are followed by others are about as large.
constexpr std::size_t kPiece = std::size_t{64} * 1024;
// Left free in a piece for its last item; one that is larger makes it grow.
constexpr std::size_t kUsualItem = 4096;

/// The items before `end` as an array. Each begins with its comma; the first one's makes place for
/// the bracket.
void take_array(std::string& out, Column& column, std::size_t end) {
  const std::size_t start = out.size();
  column.take(out, end);
  if (out.size() > start) {
    out[start] = '[';
  } else {
    out += '[';
  }
  out += ']';
}

}  // namespace

std::string& Column::tail() {
  if (pieces_.empty()) {
    pieces_.emplace_back();
  } else if (pieces_.back().size() + kUsualItem > kPiece) {
    tail_begin_ += pieces_.back().size();
    pieces_.emplace_back().reserve(kPiece);
  }
  return pieces_.back();
}

void Column::append_to(std::string& out) const {
  for (const std::string& piece : pieces_) {
    out += piece;
  }
}

void Column::remove(std::size_t end, std::string* out) {
  std::size_t emptied = 0;
  while (begin_ < end) {
    std::string& piece = pieces_[emptied];
    const std::size_t count = std::min(end - begin_, piece.size());
    if (out) {
      out->append(piece, 0, count);
    }
    begin_ += count;
    const bool last = emptied + 1 == pieces_.size();
    if (!last && count == piece.size()) {
      std::string().swap(piece);
      ++emptied;
      continue;
    }
    piece.erase(0, count);  // keeps its memory for what follows
    if (last) {
      tail_begin_ += count;
    }
  }
  pieces_.erase(pieces_.begin(), pieces_.begin() + static_cast<std::ptrdiff_t>(emptied));
}

void TokenColumns::add_row(engine::TokenId id, std::uint32_t offset, bool of_prompt) {
  rows_.push_back({id, offset, of_prompt, items_.end(), logprobs_.end(), maps_.end()});
}

void TokenColumns::add_arrays(engine::TokenId id, const engine::TokenLogprob* entry) {
  std::string& tokens = items_.tail();
  tokens += ',';
  writer_->token(tokens, id);
  std::string& logprobs = logprobs_.tail();
  std::string& maps = maps_.tail();
  logprobs += ',';
  maps += ',';
  if (entry) {
    json::append_number(logprobs, double{entry->logprob});
    writer_->text_map(maps, id, *entry, shape_.limit);
  } else {
    logprobs += "null";
    maps += "null";
  }
}

void TokenColumns::add(engine::TokenId id, const engine::TokenLogprob* entry,
                       std::uint32_t offset) {
  if (shape_.logprobs && entry) {
    if (shape_.chat) {
      std::string& items = items_.tail();
      items += ',';
      writer_->chat_entry(items, id, *entry, shape_.limit);
    } else {
      add_arrays(id, entry);
    }
  }
  add_row(id, offset, false);
}

void TokenColumns::add_prompt(engine::TokenId id, const engine::TokenLogprob* entry,
                              std::uint32_t offset) {
  add_arrays(id, entry);
  add_row(id, offset, true);
}

std::size_t TokenColumns::ready(std::uint32_t characters) const {
  const auto first_held =
      std::ranges::find_if(rows_, [&](const Row& row) { return row.offset >= characters; });
  return static_cast<std::size_t>(first_held - rows_.begin());
}

void TokenColumns::take_logprobs(std::string& out, std::size_t count, std::uint32_t characters) {
  const Row* last = count > 0 ? &rows_[count - 1] : nullptr;
  if (shape_.chat) {
    out += "{\"content\":";
    take_array(out, items_, last ? last->item_end : 0);
    out += ",\"refusal\":null}";
    return;
  }
  out += "{\"tokens\":";
  take_array(out, items_, last ? last->item_end : 0);
  out += ",\"token_logprobs\":";
  take_array(out, logprobs_, last ? last->logprob_end : 0);
  out += ",\"top_logprobs\":";
  take_array(out, maps_, last ? last->map_end : 0);
  out += ",\"text_offset\":[";
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) {
      out += ',';
    }
    json::append_number(out, std::uint64_t{std::min(rows_[i].offset, characters)});
  }
  out += "]}";
}

void TokenColumns::write_ids(std::string& out, std::size_t count) const {
  char separator = '[';
  for (std::size_t i = 0; i < count; ++i) {
    if (rows_[i].of_prompt) {
      continue;
    }
    out += separator;
    json::append_number(out, std::uint64_t{rows_[i].id});
    separator = ',';
  }
  out += separator == '[' ? "[]" : "]";
}

void TokenColumns::drop(std::size_t count) {
  if (count == 0) {
    return;
  }
  const Row last = rows_[count - 1];
  rows_.erase(rows_.begin(), rows_.begin() + static_cast<std::ptrdiff_t>(count));
  items_.drop(last.item_end);
  logprobs_.drop(last.logprob_end);
  maps_.drop(last.map_end);
}

}  // namespace fairlead::api::openai
