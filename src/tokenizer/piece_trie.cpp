#include "tokenizer/piece_trie.hpp"

#include <algorithm>

namespace fairlead::tokenizer {

PieceTrie::PieceTrie(std::span<const Piece> pieces) {
  std::vector<Piece> sorted(pieces.begin(), pieces.end());
  std::sort(sorted.begin(), sorted.end(), [](const Piece& a, const Piece& b) {
    return a.text != b.text ? a.text < b.text : a.value < b.value;
  });
  struct Range {  // the strings below a node
    std::uint32_t begin;
    std::uint32_t end;
  };
  std::vector<Range> level = {{0, static_cast<std::uint32_t>(sorted.size())}};
  std::vector<Range> next;
  labels_.push_back(0);
  for (std::size_t depth = 0; !level.empty(); ++depth) {
    for (Range range : level) {
      first_child_.push_back(static_cast<std::uint32_t>(labels_.size()));
      values_.push_back(kNoValue);
      for (; range.begin != range.end && sorted[range.begin].text.size() == depth; ++range.begin) {
        values_.back() = sorted[range.begin].value;
      }
      while (range.begin != range.end) {
        const char label = sorted[range.begin].text[depth];
        std::uint32_t end = range.begin + 1;
        while (end != range.end && sorted[end].text[depth] == label) {
          ++end;
        }
        labels_.push_back(static_cast<unsigned char>(label));
        next.push_back({range.begin, end});
        range.begin = end;
      }
    }
    level.swap(next);
    next.clear();
  }
  first_child_.push_back(static_cast<std::uint32_t>(labels_.size()));
  root_.assign(256, kNowhere);
  for (std::uint32_t child = first_child_[0]; child < first_child_[1]; ++child) {
    root_[labels_[child]] = child;
  }
}

PieceTrie::Node PieceTrie::walk(Node node, std::string_view text) const {
  for (const char c : text) {
    node = step(node, static_cast<unsigned char>(c));
    if (node == kNowhere) {
      break;
    }
  }
  return node;
}

}  // namespace fairlead::tokenizer
