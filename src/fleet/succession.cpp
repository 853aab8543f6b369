#include "fleet/succession.hpp"

#include <algorithm>

namespace fairlead::fleet {

Succession find_successor(std::span<Member* const> members,
                          const std::function<bool(const Member&)>& incumbent, net::TimePoint now,
                          net::Duration after) {
  Succession out;
  const Member* heir = nullptr;
  bool incumbent_there = false;
  net::TimePoint down_since = net::TimePoint::min();
  for (const Member* member : members) {
    if (!incumbent(*member)) {
      heir = !heir && member->up ? member : heir;
      continue;
    }
    if (member->up) {
      return out;
    }
    incumbent_there = true;
    down_since = std::max(down_since, member->down_since);
  }
  if (heir && incumbent_there && now - down_since < after) {
    out.later = down_since + after;
    return out;
  }
  out.heir = heir;
  out.extinct = !incumbent_there && !heir;
  return out;
}

}  // namespace fairlead::fleet
