// SPDX-License-Identifier: MIT
// Code that fmt's headers leave to its library: Debian has only a shared one, of another version in each release.
// Compiling it here once saves seconds in every other file (FMT_HEADER_ONLY).
#ifndef FMT_HEADER_ONLY
#include <fmt/format-inl.h>

#include <locale>

template fmt::detail::locale_ref::locale_ref(const std::locale&);
template auto fmt::detail::locale_ref::get<std::locale>() const -> std::locale;
template auto fmt::detail::dragonbox::to_decimal(float) noexcept -> fmt::detail::dragonbox::decimal_fp<float>;
template auto fmt::detail::dragonbox::to_decimal(double) noexcept -> fmt::detail::dragonbox::decimal_fp<double>;
template auto fmt::detail::thousands_sep_impl<char>(fmt::detail::locale_ref) -> fmt::detail::thousands_sep_result<char>;
template auto fmt::detail::decimal_point_impl<char>(fmt::detail::locale_ref) -> char;
template void fmt::detail::buffer<char>::append<char>(const char*, const char*);
template void fmt::detail::vformat_to<char>(fmt::detail::buffer<char>&, fmt::string_view, fmt::format_args,
                                            fmt::detail::locale_ref);
#endif
