#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace fairlead::jinja {

/// Sorts stably. `before` may answer anything (it can fail half-way): the result is then some
/// order, never a crash.
template <class T, class Before>
void merge_sort(std::vector<T>& items, Before before) {
  std::vector<T> other(items.size());
  for (std::size_t width = 1; width < items.size(); width *= 2) {
    for (std::size_t begin = 0; begin < items.size(); begin += 2 * width) {
      const std::size_t middle = std::min(begin + width, items.size());
      const std::size_t end = std::min(begin + 2 * width, items.size());
      std::size_t left = begin;
      std::size_t right = middle;
      for (std::size_t to = begin; to < end; ++to) {
        const bool take_right =
            left == middle || (right < end && before(items[right], items[left]));
        other[to] = std::move(items[take_right ? right++ : left++]);
      }
    }
    items.swap(other);
  }
}

}  // namespace fairlead::jinja
