// SPDX-License-Identifier: MIT
#include "machine/fetch/libcurl.hpp"

#include <dlfcn.h>

#include <string>

namespace p2pd {
namespace {

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

bool find_all(void* library, Libcurl& curl) {
  return find(library, "curl_global_init", curl.global_init) && find(library, "curl_easy_init", curl.easy_init) &&
         find(library, "curl_easy_cleanup", curl.easy_cleanup) && find(library, "curl_easy_setopt", curl.easy_setopt) &&
         find(library, "curl_easy_getinfo", curl.easy_getinfo) &&
         find(library, "curl_easy_perform", curl.easy_perform) &&
         find(library, "curl_easy_strerror", curl.easy_strerror) &&
         find(library, "curl_slist_append", curl.slist_append) &&
         find(library, "curl_slist_free_all", curl.slist_free_all) && find(library, "curl_url", curl.url) &&
         find(library, "curl_url_cleanup", curl.url_cleanup) && find(library, "curl_url_set", curl.url_set) &&
         find(library, "curl_url_get", curl.url_get) && find(library, "curl_free", curl.free);
}

Result<Libcurl> load() {
  Libcurl curl{};
  void* library = ::dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr || !find_all(library, curl)) {
    const char* words = ::dlerror();
    return fail(ErrorCode::not_found, words != nullptr ? words : "libcurl.so.4 is another library",
                "Install libcurl: apt-get install libcurl4.");
  }
  if (curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) return fail(ErrorCode::io, "libcurl does not start");
  return curl;
}

}  // namespace

Result<const Libcurl*> libcurl() {
  static const Result<Libcurl> loaded = load();
  if (!loaded) return Failure(loaded.error());
  return &*loaded;
}

}  // namespace p2pd
