#include "jinja/bigint.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace fairlead::jinja {
namespace {

constexpr std::uint64_t kBase = 1'000'000'000;
constexpr std::size_t kBaseDigits = 9;

}  // namespace

BigInt::BigInt(std::int64_t value) : negative_(value < 0) {
  auto magnitude =
      negative_ ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
  while (magnitude != 0) {
    limbs_.push_back(static_cast<std::uint32_t>(magnitude % kBase));
    magnitude /= kBase;
  }
}

std::optional<BigInt> BigInt::parse(std::string_view digits) {
  BigInt result;
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) {
    result.negative_ = digits[0] == '-';
    digits.remove_prefix(1);
  }
  if (digits.empty() || !std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; })) {
    return std::nullopt;
  }
  while (!digits.empty()) {
    const std::size_t take = std::min(kBaseDigits, digits.size());
    std::uint32_t limb = 0;
    const char* end = digits.data() + digits.size();
    std::from_chars(end - take, end, limb);
    result.limbs_.push_back(limb);
    digits.remove_suffix(take);
  }
  result.trim();
  return result;
}

BigInt BigInt::from_double(double value) {
  int exponent = 0;
  const double fraction = std::frexp(std::trunc(std::abs(value)), &exponent);
  if (exponent <= 63) {
    return BigInt(static_cast<std::int64_t>(std::trunc(value)));
  }
  BigInt result(static_cast<std::int64_t>(std::ldexp(fraction, 53)));
  const BigInt scale(std::int64_t{1} << 30);
  for (int shift = exponent - 53; shift > 0; shift -= 30) {
    result = result * (shift >= 30 ? scale : BigInt(std::int64_t{1} << shift));
  }
  result.negative_ = value < 0;
  return result;
}

std::string BigInt::text() const {
  if (limbs_.empty()) {
    return "0";
  }
  std::string out = negative_ ? "-" : "";
  out += std::to_string(limbs_.back());
  for (std::size_t i = limbs_.size() - 1; i-- > 0;) {
    const std::string limb = std::to_string(limbs_[i]);
    out.append(kBaseDigits - limb.size(), '0');
    out += limb;
  }
  return out;
}

std::optional<std::int64_t> BigInt::small() const {
  constexpr std::size_t kLimbsOf64Bits = 3;
  if (limbs_.size() > kLimbsOf64Bits) {
    return std::nullopt;
  }
  unsigned __int128 magnitude = 0;
  for (std::size_t i = limbs_.size(); i-- > 0;) {
    magnitude = magnitude * kBase + limbs_[i];
  }
  constexpr auto kMax = static_cast<unsigned __int128>(std::numeric_limits<std::int64_t>::max());
  if (magnitude > kMax + (negative_ ? 1 : 0)) {
    return std::nullopt;
  }
  const auto low = static_cast<std::uint64_t>(magnitude);
  return static_cast<std::int64_t>(negative_ ? 0 - low : low);
}

double BigInt::to_double() const {
  const std::string digits = text();
  double value = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (parsed.ec == std::errc::result_out_of_range) {
    value = std::numeric_limits<double>::infinity();
    return negative_ ? -value : value;
  }
  return value;
}

BigInt BigInt::operator-() const {
  BigInt result = *this;
  result.negative_ = !negative_ && !zero();
  return result;
}

int BigInt::compare_magnitude(const BigInt& a, const BigInt& b) {
  if (a.limbs_.size() != b.limbs_.size()) {
    return a.limbs_.size() < b.limbs_.size() ? -1 : 1;
  }
  for (std::size_t i = a.limbs_.size(); i-- > 0;) {
    if (a.limbs_[i] != b.limbs_[i]) {
      return a.limbs_[i] < b.limbs_[i] ? -1 : 1;
    }
  }
  return 0;
}

BigInt BigInt::add_magnitude(const BigInt& a, const BigInt& b) {
  BigInt result;
  std::uint64_t carry = 0;
  for (std::size_t i = 0; i < std::max(a.limbs_.size(), b.limbs_.size()) || carry != 0; ++i) {
    carry += i < a.limbs_.size() ? a.limbs_[i] : 0;
    carry += i < b.limbs_.size() ? b.limbs_[i] : 0;
    result.limbs_.push_back(static_cast<std::uint32_t>(carry % kBase));
    carry /= kBase;
  }
  return result;
}

BigInt BigInt::subtract_magnitude(const BigInt& a, const BigInt& b) {
  BigInt result;
  std::int64_t borrow = 0;
  for (std::size_t i = 0; i < a.limbs_.size(); ++i) {
    std::int64_t digit = static_cast<std::int64_t>(a.limbs_[i]) - borrow -
                         (i < b.limbs_.size() ? static_cast<std::int64_t>(b.limbs_[i]) : 0);
    borrow = digit < 0 ? 1 : 0;
    digit += borrow * static_cast<std::int64_t>(kBase);
    result.limbs_.push_back(static_cast<std::uint32_t>(digit));
  }
  result.trim();
  return result;
}

void BigInt::trim() {
  while (!limbs_.empty() && limbs_.back() == 0) {
    limbs_.pop_back();
  }
  if (limbs_.empty()) {
    negative_ = false;
  }
}

BigInt operator+(const BigInt& a, const BigInt& b) {
  BigInt result;
  if (a.negative_ == b.negative_) {
    result = BigInt::add_magnitude(a, b);
    result.negative_ = a.negative_;
  } else if (BigInt::compare_magnitude(a, b) >= 0) {
    result = BigInt::subtract_magnitude(a, b);
    result.negative_ = a.negative_;
  } else {
    result = BigInt::subtract_magnitude(b, a);
    result.negative_ = b.negative_;
  }
  result.trim();
  return result;
}

BigInt operator-(const BigInt& a, const BigInt& b) { return a + -b; }

BigInt operator*(const BigInt& a, const BigInt& b) {
  BigInt result;
  result.limbs_.assign(a.limbs_.size() + b.limbs_.size(), 0);
  for (std::size_t i = 0; i < a.limbs_.size(); ++i) {
    std::uint64_t carry = 0;
    for (std::size_t j = 0; j < b.limbs_.size() || carry != 0; ++j) {
      carry += result.limbs_[i + j];
      if (j < b.limbs_.size()) {
        carry += static_cast<std::uint64_t>(a.limbs_[i]) * b.limbs_[j];
      }
      result.limbs_[i + j] = static_cast<std::uint32_t>(carry % kBase);
      carry /= kBase;
    }
  }
  result.negative_ = a.negative_ != b.negative_;
  result.trim();
  return result;
}

std::strong_ordering operator<=>(const BigInt& a, const BigInt& b) {
  if (a.negative_ != b.negative_) {
    return a.negative_ ? std::strong_ordering::less : std::strong_ordering::greater;
  }
  const int magnitude = BigInt::compare_magnitude(a, b) * (a.negative_ ? -1 : 1);
  return magnitude <=> 0;
}

void BigInt::divide(const BigInt& dividend, const BigInt& divisor, BigInt& quotient,
                    BigInt& remainder) {
  quotient = BigInt();
  remainder = BigInt();
  BigInt magnitude = divisor;
  magnitude.negative_ = false;
  quotient.limbs_.assign(dividend.limbs_.size(), 0);
  for (std::size_t i = dividend.limbs_.size(); i-- > 0;) {
    remainder.limbs_.insert(remainder.limbs_.begin(), dividend.limbs_[i]);
    remainder.trim();
    // The largest digit whose product still fits.
    std::uint32_t low = 0;
    std::uint32_t high = kBase - 1;
    while (low < high) {
      const std::uint32_t middle = low + (high - low + 1) / 2;
      if (compare_magnitude(magnitude * BigInt(middle), remainder) <= 0) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    quotient.limbs_[i] = low;
    remainder = remainder - magnitude * BigInt(low);
  }
  quotient.trim();
  const bool opposite = dividend.negative_ != divisor.negative_;
  quotient.negative_ = opposite && !quotient.zero();
  remainder.negative_ = dividend.negative_ && !remainder.zero();
  if (opposite && !remainder.zero()) {
    quotient = quotient - BigInt(1);
    remainder = remainder + divisor;
  }
}

}  // namespace fairlead::jinja
