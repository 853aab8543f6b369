#include "tokenizer/token_trie.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

namespace fairlead::tokenizer {

namespace {

std::uint32_t bit_of(std::uint32_t unit) { return std::uint32_t{1} << (unit & 31); }

std::size_t place_of(std::uint32_t unit) { return unit * 0x9E3779B1U >> 15; }

// The character of two or three bytes with this number.
std::array<char, 3> bytes_of(std::uint32_t code) {
  const auto rest = [code](unsigned shift) {
    return static_cast<char>(0x80 | (code >> shift & 0x3F));
  };
  return code < 0x800 ? std::array<char, 3>{static_cast<char>(0xC0 | code >> 6), rest(0)}
                      : std::array<char, 3>{static_cast<char>(0xE0 | code >> 12), rest(6), rest(0)};
}

}  // namespace

// Equal bytes give equal units: encodings that are longer than needed are taken byte by byte.
TokenTrie::Unit TokenTrie::unit_at(const char* text, std::size_t size) {
  const auto byte = [text](std::size_t i) {
    return std::uint32_t{static_cast<unsigned char>(text[i])};
  };
  const auto continues = [text](std::size_t i) {
    return (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80;
  };
  const std::uint32_t lead = byte(0);
  if (lead < 0x80) {
    return {lead, 1};
  }
  if ((lead & 0xF0) == 0xE0) {
    if (size >= 3 && continues(1) && continues(2)) {
      const std::uint32_t code = (lead & 0xF) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
      if (code >= 0x800) {
        return {code, 3};
      }
    }
  } else if ((lead & 0xE0) == 0xC0 && lead >= 0xC2 && size >= 2 && continues(1)) {
    return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  }
  return {kBytes + lead, 1};
}

inline const TokenTrie::Node* TokenTrie::child(const Node& node, std::uint32_t unit) const {
  if ((node.next & bit_of(unit)) == 0) {
    return nullptr;
  }
  const Node* table = nodes_.data() + node.table;
  const std::size_t mask = (std::size_t{1} << node.table_bits) - 1;
  const std::size_t first = place_of(unit);
  for (std::size_t i = first; i <= first + mask; ++i) {
    const Node& found = table[i & mask];
    if (found.unit == unit) {
      return &found;
    }
    if (found.unit == kNoUnit) {
      break;
    }
  }
  return nullptr;
}

// `node`, or the node of the longest token that goes on from there and ends inside a character of
// `size` bytes.
const TokenTrie::Node* TokenTrie::inside(const Node* node, const char* text,
                                         std::size_t size) const {
  const Node* last = node;
  for (std::size_t i = 0; i + 1 < size && last != nullptr; ++i) {
    last = child(*last, kBytes + static_cast<unsigned char>(text[i]));
    node = last != nullptr ? last : node;
  }
  return node;
}

TokenTrie::Match TokenTrie::longest(std::string_view text) const {
  const char* at = text.data();
  const char* end = at + text.size();
  Unit unit = unit_at(at, text.size());
  const Node* node = &nodes_[unit.code];
  for (;;) {
    at += unit.bytes;
    if (at == end) {
      break;
    }
    unit = unit_at(at, static_cast<std::size_t>(end - at));
    const Node* next = child(*node, unit.code);
    if (next == nullptr) {
      if (node->broken != 0) {
        node = inside(node, at, unit.bytes);
      }
      break;
    }
    node = next;
  }
  return {node->token, node->length};
}

// Goes through the sorted tokens and lays down the nodes.
class TokenTrie::Builder {
 public:
  Builder(TokenTrie& trie, const Vocabulary& vocabulary, std::span<const TokenId> tokens)
      : trie_(trie) {
    sort(vocabulary, tokens);
  }

  // False when there are too many nodes.
  bool run() {
    trie_.nodes_.resize(kUnits);
    split({.begin = 0, .end = static_cast<std::uint32_t>(tokens_.size())});
    const std::vector<Part> parts = parts_;
    // Tokens that end inside a character are known before those that go on behind it.
    bool fits = true;
    for (const Part& part : parts) {
      fits = fits && (part.unit < kBytes || lay(part.unit, part));
    }
    for (std::uint32_t code = 0x80; code < kBytes; ++code) {
      const std::array<char, 3> text = bytes_of(code);
      const Node& lead = trie_.nodes_[kBytes + static_cast<unsigned char>(text[0])];
      const Node* from = trie_.inside(&lead, text.data() + 1, code < 0x800 ? 1 : 2);
      trie_.nodes_[code].token = from->token;
      trie_.nodes_[code].length = from->length;
    }
    for (const Part& part : parts) {
      fits = fits && (part.unit >= kBytes || lay(part.unit, part));
    }
    return fits;
  }

 private:
  struct Token {
    std::uint32_t offset;  // of its bytes in text_
    std::uint32_t length;
    TokenId id;
  };
  // Tokens with the same units up to `depth`, the number of their bytes, of which `unit` is the
  // last.
  struct Part {
    std::uint32_t unit = kNoUnit;
    std::uint32_t depth = 0;
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
  };
  struct Task {
    std::uint32_t node;
    std::uint32_t parent;  // kNone: the root
    Part part;
  };
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  static constexpr std::size_t kMaxNodes = std::size_t{1} << 24;

  // The tokens in the order of their bytes, which are copied in that order.
  void sort(const Vocabulary& vocabulary, std::span<const TokenId> tokens) {
    struct Key {
      std::uint64_t first;  // eight bytes; the rest is rarely needed
      TokenId id;
    };
    const auto first_bytes = [&](TokenId id) {
      const std::string_view bytes = vocabulary.bytes(id);
      std::uint64_t first = 0;
      std::memcpy(&first, bytes.data(), std::min(bytes.size(), sizeof first));
      return std::endian::native == std::endian::little ? __builtin_bswap64(first) : first;
    };
    // By the first two bytes, then each of these groups.
    std::vector<std::uint32_t> ends(1U << 16);
    std::size_t size = 0;
    for (const TokenId id : tokens) {
      ++ends[first_bytes(id) >> 48];
      size += vocabulary.bytes(id).size();
    }
    std::partial_sum(ends.begin(), ends.end(), ends.begin());
    std::vector<Key> keys(tokens.size());
    for (const TokenId id : tokens) {
      const std::uint64_t first = first_bytes(id);
      keys[--ends[first >> 48]] = {first, id};
    }
    for (std::size_t i = 0; i < ends.size(); ++i) {  // which have become beginnings
      const std::size_t end = i + 1 < ends.size() ? ends[i + 1] : keys.size();
      std::sort(keys.begin() + ends[i], keys.begin() + static_cast<std::ptrdiff_t>(end),
                [&](const Key& a, const Key& b) {
                  return a.first != b.first ? a.first < b.first
                                            : vocabulary.bytes(a.id) < vocabulary.bytes(b.id);
                });
    }
    text_.reserve(size);
    tokens_.reserve(keys.size());
    for (const Key& key : keys) {
      const std::string_view bytes = vocabulary.bytes(key.id);
      tokens_.push_back({static_cast<std::uint32_t>(text_.size()),
                         static_cast<std::uint32_t>(bytes.size()), key.id});
      text_ += bytes;
    }
  }

  // Divides the tokens that are longer than `part` is deep by their next unit, into parts_.
  void split(const Part& part) {
    parts_.clear();
    bool broken = false;
    for (std::uint32_t i = part.begin; i != part.end; ++i) {
      const Token& token = tokens_[i];
      if (token.length == part.depth) {
        continue;
      }
      const Unit unit =
          unit_at(text_.data() + token.offset + part.depth, token.length - part.depth);
      if (parts_.empty() || parts_.back().unit != unit.code) {
        parts_.push_back({unit.code, part.depth + unit.bytes, i, i});
        broken = broken || unit.code >= kBytes;
      }
      parts_.back().end = i + 1;
    }
    if (broken) {
      gather();
    }
  }

  // Tokens that end inside a character lie between those that contain it whole.
  void gather() {
    std::ranges::sort(parts_, {},
                      [](const Part& part) { return std::pair(part.unit, part.begin); });
    std::size_t kept = 0;
    for (std::size_t i = 0; i < parts_.size();) {
      std::size_t next = i + 1;
      while (next < parts_.size() && parts_[next].unit == parts_[i].unit) {
        ++next;
      }
      Part part = parts_[i];
      if (next != i + 1) {
        part.begin = static_cast<std::uint32_t>(tokens_.size());
        for (; i != next; ++i) {
          for (std::uint32_t at = parts_[i].begin; at != parts_[i].end; ++at) {
            const Token token = tokens_[at];  // which moves as the list grows
            tokens_.push_back(token);
          }
        }
        part.end = static_cast<std::uint32_t>(tokens_.size());
      }
      parts_[kept++] = part;
      i = next;
    }
    parts_.resize(kept);
  }

  bool lay(std::uint32_t node, const Part& part) {
    tasks_.push_back({node, kNone, part});
    while (!tasks_.empty()) {
      const Task task = tasks_.back();
      tasks_.pop_back();
      begin(task);
      split(task.part);
      if (!parts_.empty() && !lay_table(task.node)) {
        return false;
      }
    }
    return true;
  }

  // Finds the token of a node.
  void begin(const Task& task) {
    std::vector<Node>& nodes = trie_.nodes_;
    Node& node = nodes[task.node];
    const std::uint32_t unit = task.part.unit;
    if (task.parent != kNone) {
      const Node* from = &nodes[task.parent];
      if (from->broken != 0 && unit >= 0x80 && unit < kBytes) {
        from = trie_.inside(from, bytes_of(unit).data(), unit < 0x800 ? 2 : 3);
      }
      node.token = from->token;
      node.length = from->length;
    }
    // Of the tokens of a part the shortest is the first.
    const Token& first = tokens_[task.part.begin];
    if (first.length == task.part.depth) {
      trie_.shorter_[first.id] = node.length != 0 ? node.token : kNoToken;
      node.token = first.id;
      node.length = std::min(task.part.depth, kLong) & kLong;
    }
  }

  // Makes the nodes of parts_, which follow `parent`.
  bool lay_table(std::uint32_t parent) {
    std::vector<Node>& nodes = trie_.nodes_;
    const std::size_t count = parts_.size();
    const std::size_t places = std::bit_ceil(count <= 2 ? count : count * 5 / 4);
    const auto table = static_cast<std::uint32_t>(nodes.size());
    if (nodes.size() + places > kMaxNodes) {
      return false;
    }
    nodes.resize(nodes.size() + places);
    nodes[parent].table = table;
    nodes[parent].table_bits = static_cast<std::uint32_t>(std::countr_zero(places)) & 31;
    for (const Part& part : parts_) {
      std::size_t place = place_of(part.unit) & (places - 1);
      while (nodes[table + place].unit != kNoUnit) {
        place = (place + 1) & (places - 1);
      }
      nodes[table + place].unit = part.unit & kNoUnit;
      nodes[parent].next |= bit_of(part.unit);
      nodes[parent].broken |= part.unit >= kBytes ? 1U : 0U;
      // Those that end inside a character are done first, since they come last.
      tasks_.push_back({table + static_cast<std::uint32_t>(place), parent, part});
    }
    return true;
  }

  TokenTrie& trie_;
  std::string text_;
  std::vector<Token> tokens_;
  std::vector<Part> parts_;
  std::vector<Task> tasks_;
};

bool TokenTrie::build(const Vocabulary& vocabulary, std::span<const TokenId> tokens) {
  shorter_.assign(vocabulary.id_limit(), kNoToken);
  return Builder(*this, vocabulary, tokens).run();
}

}  // namespace fairlead::tokenizer
