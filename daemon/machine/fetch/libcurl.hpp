// SPDX-License-Identifier: MIT
/// libcurl, loaded when the first transfer begins: it needs thirty libraries, which each command would load at its start.
#pragma once

#define CURL_DISABLE_DEPRECATION  // successors of some options are not in Ubuntu 22.04
#include <curl/curl.h>

#include "base/result.hpp"

namespace p2pd {

/// Functions of libcurl, as in <curl/curl.h>.
struct Libcurl {
  decltype(&::curl_global_init) global_init;
  decltype(&::curl_easy_init) easy_init;
  decltype(&::curl_easy_cleanup) easy_cleanup;
  decltype(&::curl_easy_setopt) easy_setopt;
  decltype(&::curl_easy_getinfo) easy_getinfo;
  decltype(&::curl_easy_perform) easy_perform;
  decltype(&::curl_easy_strerror) easy_strerror;
  decltype(&::curl_slist_append) slist_append;
  decltype(&::curl_slist_free_all) slist_free_all;
  decltype(&::curl_url) url;
  decltype(&::curl_url_cleanup) url_cleanup;
  decltype(&::curl_url_set) url_set;
  decltype(&::curl_url_get) url_get;
  decltype(&::curl_free) free;
};

/// Library of this process, ready for use; it stays until the process ends. not_found if there is none.
Result<const Libcurl*> libcurl();

}  // namespace p2pd
