#include "kv/dump.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <utility>

#include "base/json.hpp"

namespace fairlead::kv {
namespace {

constexpr std::string_view kBlocks = R"({"blocks":[)";
constexpr std::string_view kSalted = R"({"salted":[)";
constexpr std::string_view kRowsEnd = "]}";
constexpr std::size_t kBlockColumns = 2 + kTierCount;
constexpr std::size_t kSaltColumns = 4;

constexpr std::array kCoverages{Coverage::Complete, Coverage::Partial, Coverage::Doubtful};

std::unexpected<Error> malformed(std::string reason) {
  return fail(ErrorCode::InvalidRequest, std::move(reason));
}

void append_checkpoint(json::Writer& writer, const Checkpoint& checkpoint) {
  const StreamPoint& point = checkpoint.point;
  writer.begin_object().key("sequence").unsigned_integer(point.sequence);
  writer.key("fingerprint").unsigned_integer(point.fingerprint);
  writer.key("coverage").string(name(point.coverage));
  writer.key("batches").unsigned_integer(point.batches);
  writer.key("stored").unsigned_integer(point.stored);
  writer.key("removed").unsigned_integer(point.removed);
  writer.key("lost").unsigned_integer(point.lost);
  writer.key("bigram");
  checkpoint.memory.bigram ? writer.boolean(*checkpoint.memory.bigram) : writer.null();
  writer.key("groups").begin_array();
  for (const auto& [group, counts] : checkpoint.memory.groups) {
    writer.begin_array().integer(group).boolean(counts).end_array();
  }
  writer.end_array().key("salted").unsigned_integer(checkpoint.memory.salted.size());
  writer.end_object();
}

/// Appends lines `prefix[...],...]}` of rows, each of which `write` fills.
template <class Row, class Write>
void append_rows(std::string& out, std::string_view prefix, std::span<const Row> rows,
                 const Write& write) {
  while (!rows.empty()) {
    const auto line = rows.first(std::min(rows.size(), kDumpedPerLine));
    rows = rows.subspan(line.size());
    out += prefix;
    json::Writer writer(out);
    for (const Row& row : line) {
      writer.begin_array();
      write(writer, row);
      writer.end_array();
    }
    out += kRowsEnd;
    out += '\n';
  }
}

/// Reads the rest of a line of rows of whole numbers into one list; false when it is none.
bool read_rows(std::string_view text, std::size_t columns, std::vector<std::uint64_t>& out) {
  out.clear();
  if (!text.ends_with(kRowsEnd)) {
    return false;
  }
  text.remove_suffix(kRowsEnd.size());
  while (true) {
    if (!text.starts_with('[')) {
      return false;
    }
    for (std::size_t i = 0; i < columns; ++i) {
      text.remove_prefix(1);
      std::uint64_t number = 0;
      const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
      if (error != std::errc()) {
        return false;
      }
      text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
      if (!text.starts_with(i + 1 < columns ? ',' : ']')) {
        return false;
      }
      out.push_back(number);
    }
    text.remove_prefix(1);
    if (text.empty()) {
      return true;
    }
    if (!text.starts_with(',')) {
      return false;
    }
    text.remove_prefix(1);
  }
}

/// Reads members of one object; what is missing or of another kind is remembered.
class Members {
 public:
  explicit Members(const json::Value* object) : object_(object) { ok_ = object != nullptr; }

  bool ok() const { return ok_; }
  const json::Value* find(std::string_view key) const {
    return object_ ? object_->find(key) : nullptr;
  }
  std::string text(std::string_view key) {
    const json::Value* value = find(key);
    if (value && value->is_null()) {
      return {};
    }
    const std::string* text = value ? value->as_string() : nullptr;
    ok_ &= text != nullptr;
    return text ? *text : std::string();
  }
  std::uint64_t number(std::string_view key,
                       std::uint64_t most = std::numeric_limits<std::uint64_t>::max()) {
    const json::Value* value = find(key);
    std::optional<std::uint64_t> number;
    if (const std::int64_t* small = value ? value->as_int() : nullptr; small && *small >= 0) {
      number = static_cast<std::uint64_t>(*small);
    } else if (const auto* big = value ? std::get_if<json::BigInt>(&value->storage()) : nullptr) {
      std::uint64_t large = 0;
      const char* const end = big->digits.data() + big->digits.size();
      const auto parsed = std::from_chars(big->digits.data(), end, large);
      if (parsed.ec == std::errc() && parsed.ptr == end) {
        number = large;
      }
    }
    ok_ &= number && *number <= most;
    return number.value_or(0);
  }
  std::optional<bool> flag(std::string_view key) {
    const json::Value* value = find(key);
    const bool* flag = value ? value->as_bool() : nullptr;
    ok_ &= flag != nullptr || (value && value->is_null());
    return flag ? std::optional(*flag) : std::nullopt;
  }
  Coverage coverage(std::string_view key) {
    const std::string text = this->text(key);
    const auto found = std::ranges::find(kCoverages, text, [](Coverage c) { return name(c); });
    ok_ &= found != kCoverages.end();
    return found == kCoverages.end() ? Coverage::Partial : *found;
  }
  std::vector<std::pair<std::int64_t, bool>> groups(std::string_view key) {
    std::vector<std::pair<std::int64_t, bool>> out;
    const json::Value* value = find(key);
    const json::Array* rows = value ? value->as_array() : nullptr;
    ok_ &= rows && rows->size() <= kMaxGroups;
    for (std::size_t i = 0; ok_ && i < rows->size(); ++i) {
      const json::Array* row = (*rows)[i].as_array();
      const bool pair = row && row->size() == 2;
      const std::int64_t* group = pair ? (*row)[0].as_int() : nullptr;
      const bool* counts = pair ? (*row)[1].as_bool() : nullptr;
      ok_ &= group && counts;
      if (ok_) {
        out.emplace_back(*group, *counts);
      }
    }
    return out;
  }

 private:
  const json::Value* object_;
  bool ok_;
};

}  // namespace

void append_dump_start(std::string& out) {
  json::Writer(out).begin_object().key("version").integer(kDumpVersion).end_object();
  out += '\n';
}

void append_dump_target(std::string& out, const DumpedTarget& target) {
  json::Writer writer(out);
  writer.begin_object().key("target").begin_object().key("model").string(target.model);
  writer.key("namespace").string(target.name_space).key("role").string(target.role);
  writer.key("block_size").unsigned_integer(target.block_size);
  writer.key("bigram").boolean(target.bigram);
  writer.key("worker_id").unsigned_integer(target.worker_id);
  writer.key("dp_rank").unsigned_integer(target.rank).key("endpoint");
  target.endpoint.empty() ? writer.null() : writer.string(target.endpoint);
  writer.key("instance_id").string(target.instance_id);
  writer.key("state").string(target.state).key("blocks").unsigned_integer(target.blocks.size());
  writer.key("checkpoint");
  if (target.checkpoint) {
    append_checkpoint(writer, *target.checkpoint);
  } else {
    writer.null();
  }
  writer.end_object().end_object();
  out += '\n';
  if (target.checkpoint) {
    append_rows(out, kSalted, std::span(target.checkpoint->memory.salted),
                [](json::Writer& row, const auto& salted) {
                  const auto& [block, entry] = salted;
                  row.unsigned_integer(block).unsigned_integer(entry.salt);
                  row.unsigned_integer(entry.copies).integer(entry.ambiguous ? 1 : 0);
                });
  }
}

void append_dump_blocks(std::string& out, std::span<const HeldBlock> blocks) {
  append_rows(out, kBlocks, blocks, [](json::Writer& row, const HeldBlock& block) {
    row.unsigned_integer(block.engine).unsigned_integer(block.sequence);
    for (const std::uint32_t copies : block.copies) {
      row.unsigned_integer(copies);
    }
  });
}

void append_dump_end(std::string& out, std::size_t targets, std::size_t blocks) {
  json::Writer writer(out);
  writer.begin_object().key("end").begin_object().key("targets").unsigned_integer(targets);
  writer.key("blocks").unsigned_integer(blocks).end_object().end_object();
  out += '\n';
}

Result<> DumpReader::feed(std::string_view bytes) {
  while (failed_ && !bytes.empty()) {
    const std::size_t stop = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, stop);
    if (rest_.size() + piece.size() > kMaxDumpLine) {
      failed_ = malformed("a line is too long");
    } else if (stop == std::string_view::npos) {
      rest_ += piece;
      break;
    } else if (rest_.empty()) {
      failed_ = line(piece);
    } else {
      rest_ += piece;
      failed_ = line(rest_);
      rest_.clear();
    }
    bytes.remove_prefix(std::min(bytes.size(), piece.size() + 1));
  }
  return failed_;
}

Result<std::vector<DumpedTarget>> DumpReader::take() {
  if (!failed_) {
    return std::unexpected(failed_.error());
  }
  if (!ended_ || !rest_.empty()) {
    return malformed("it ends in the middle");
  }
  return std::move(targets_);
}

Result<> DumpReader::line(std::string_view text) {
  if (ended_) {
    return malformed("something comes behind its end");
  }
  if (started_ && (text.starts_with(kBlocks) || text.starts_with(kSalted))) {
    return rows(text);
  }
  if (blocks_left_ + salted_left_ > 0) {
    return malformed("blocks are missing");
  }
  return head(text);
}

// The lines that are few.
Result<> DumpReader::head(std::string_view text) {
  const Result<json::Value> parsed = json::parse(text);
  if (!parsed) {
    return malformed("a line is no JSON: " + parsed.error().message);
  }
  if (!started_) {
    const json::Value* version = parsed->find("version");
    const std::int64_t* number = version ? version->as_int() : nullptr;
    if (!number || *number != kDumpVersion) {
      return malformed(fmt::format("it is not of version {}", kDumpVersion));
    }
    started_ = true;
    return {};
  }
  if (const json::Value* ending = parsed->find("end")) {
    Members members(ending);
    if (members.number("targets") != targets_.size() || members.number("blocks") != blocks_ ||
        !members.ok()) {
      return malformed("it ends with other totals than it has");
    }
    ended_ = true;
    return {};
  }
  if (parsed->find("error")) {
    return malformed("the peer could not write all of it");
  }
  Members members(parsed->find("target"));
  if (!members.ok()) {
    return malformed("a line is of an unknown kind");
  }
  constexpr std::uint64_t kMost32 = std::numeric_limits<std::uint32_t>::max();
  DumpedTarget target{
      .model = members.text("model"),
      .name_space = members.text("namespace"),
      .role = members.text("role"),
      .block_size = static_cast<std::uint32_t>(members.number("block_size", kMost32)),
      .bigram = members.flag("bigram").value_or(false),
      .worker_id = members.number("worker_id"),
      .rank = static_cast<std::uint32_t>(members.number("dp_rank", kMost32)),
      .endpoint = members.text("endpoint"),
      .instance_id = members.text("instance_id"),
      .state = members.text("state"),
      .checkpoint = {},
      .blocks = {}};
  blocks_left_ = members.number("blocks");
  const json::Value* checkpoint = members.find("checkpoint");
  if (!members.ok() || !checkpoint) {
    return malformed("a target lacks a member, or one is of another kind");
  }
  if (!checkpoint->is_null()) {
    Members of(checkpoint);
    target.checkpoint = Checkpoint{
        .point = {.sequence = of.number("sequence", std::numeric_limits<std::uint64_t>::max() - 1),
                  .fingerprint = of.number("fingerprint"),
                  .coverage = of.coverage("coverage"),
                  .batches = of.number("batches"),
                  .stored = of.number("stored"),
                  .removed = of.number("removed"),
                  .lost = of.number("lost")},
        .memory = {.bigram = of.flag("bigram"), .groups = of.groups("groups"), .salted = {}}};
    salted_left_ = of.number("salted", kMaxSaltedBlocks);
    if (!of.ok()) {
      return malformed("a checkpoint lacks a member, or one is of another kind");
    }
  }
  if (!hold(1, sizeof target + text.size())) {
    return malformed("it is too large");
  }
  targets_.push_back(std::move(target));
  return {};
}

bool DumpReader::hold(std::size_t count, std::size_t bytes_each) {
  held_bytes_ += count * bytes_each;
  return held_bytes_ <= max_bytes_;
}

// A line of blocks or salts of the last target.
Result<> DumpReader::rows(std::string_view text) {
  const bool salted = text.starts_with(kSalted);
  const std::size_t columns = salted ? kSaltColumns : kBlockColumns;
  if (!read_rows(text.substr(salted ? kSalted.size() : kBlocks.size()), columns, numbers_)) {
    return malformed("a line of blocks is malformed");
  }
  const std::size_t count = numbers_.size() / columns;
  std::size_t& left = salted ? salted_left_ : blocks_left_;
  if (count > left || (!salted && salted_left_ > 0)) {
    return malformed("a target has other blocks than it says");
  }
  left -= count;
  if (!salted) {
    blocks_ += count;
  }
  DumpedTarget& target = targets_.back();
  if (!target.checkpoint) {
    return {};
  }
  auto& salts = target.checkpoint->memory.salted;
  using Salt = std::pair<EngineHash, NamespaceMemory::Entry>;
  if (!hold(count, salted ? sizeof(Salt) : sizeof(HeldBlock))) {
    return malformed("it is too large");
  }
  constexpr std::uint64_t kMostCopies = std::numeric_limits<std::uint32_t>::max();
  for (std::span<const std::uint64_t> rest = numbers_; !rest.empty();
       rest = rest.subspan(columns)) {
    const auto copies = rest.subspan(2, salted ? 1 : std::size_t{kTierCount});
    if (std::ranges::max(copies) == 0 || std::ranges::max(copies) > kMostCopies) {
      return malformed("a block has no copies, or too many");
    }
    if (salted) {
      salts.emplace_back(rest[0],
                         NamespaceMemory::Entry{.salt = rest[1],
                                                .copies = static_cast<std::uint32_t>(rest[2]),
                                                .ambiguous = rest[3] != 0});
      continue;
    }
    HeldBlock& block = target.blocks.emplace_back();
    block.engine = rest[0];
    block.sequence = rest[1];
    std::ranges::transform(copies, block.copies.begin(),
                           [](std::uint64_t n) { return static_cast<std::uint32_t>(n); });
  }
  return {};
}

}  // namespace fairlead::kv
