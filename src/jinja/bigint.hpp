#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fairlead::jinja {

/// Integer of any size, for the rare template that leaves 64 bits. Plain school methods; callers
/// bound the size.
class BigInt {
 public:
  /// Zero.
  BigInt() = default;
  /// An ordinary integer.
  explicit BigInt(std::int64_t value);
  /// Decimal digits with an optional sign; nothing when malformed.
  static std::optional<BigInt> parse(std::string_view digits);
  /// The integral part of a finite float.
  static BigInt from_double(double value);

  /// Decimal text.
  std::string text() const;
  /// The value when it fits 64 bits.
  std::optional<std::int64_t> small() const;
  /// Nearest float; infinite when too large.
  double to_double() const;
  /// Number of base-10^9 digits.
  std::size_t limbs() const { return limbs_.size(); }
  /// True below zero.
  bool negative() const { return negative_; }
  /// True for zero.
  bool zero() const { return limbs_.empty(); }

  /// The opposite.
  BigInt operator-() const;
  friend BigInt operator+(const BigInt& a, const BigInt& b);
  friend BigInt operator-(const BigInt& a, const BigInt& b);
  friend BigInt operator*(const BigInt& a, const BigInt& b);
  friend bool operator==(const BigInt& a, const BigInt& b) = default;
  friend std::strong_ordering operator<=>(const BigInt& a, const BigInt& b);

  /// Quotient rounded down and the remainder with the divisor's sign, as Python; `divisor` must not
  /// be zero.
  static void divide(const BigInt& dividend, const BigInt& divisor, BigInt& quotient,
                     BigInt& remainder);

 private:
  static int compare_magnitude(const BigInt& a, const BigInt& b);
  static BigInt add_magnitude(const BigInt& a, const BigInt& b);
  static BigInt subtract_magnitude(const BigInt& a, const BigInt& b);
  void trim();

  bool negative_ = false;
  std::vector<std::uint32_t> limbs_;  // Least significant first.
};

}  // namespace fairlead::jinja
