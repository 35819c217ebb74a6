// UCX's functions, loaded when first needed.
#pragma once

#include "bagua/Status.h"

#include <ucp/api/ucp.h>

namespace bagua::rt {

/// Not linked but loaded: UCX's constructors install signal handlers and memory hooks, which a job
/// that stays on one host should never see. Each member has the name and type of the function.
struct UcxLibrary {
#define BAGUA_UCX_FUNCTIONS(use)                                                                   \
  use(ucp_config_read) use(ucp_config_release) use(ucp_config_modify) use(ucp_init_version)        \
      use(ucp_cleanup) use(ucp_worker_create) use(ucp_worker_destroy) use(ucp_worker_get_address)  \
          use(ucp_worker_release_address) use(ucp_worker_set_am_recv_handler)                      \
              use(ucp_worker_get_efd) use(ucp_worker_arm) use(ucp_worker_progress)                 \
                  use(ucp_ep_create) use(ucp_ep_close_nbx) use(ucp_am_send_nbx)                    \
                      use(ucp_tag_send_nbx) use(ucp_tag_recv_nbx) use(ucp_request_cancel)          \
                          use(ucp_request_check_status) use(ucp_request_free)                      \
                              use(ucs_status_string)
#define BAGUA_UCX_MEMBER(name) decltype(&::name) name = nullptr;
  BAGUA_UCX_FUNCTIONS(BAGUA_UCX_MEMBER)
#undef BAGUA_UCX_MEMBER

  /// Loads on the first call; kUnimplemented with the loader's message if there is no usable UCX.
  static Status load();
  /// Set by the load() that succeeded; for those who called it, and UCX's callbacks.
  static const UcxLibrary *loaded;
};

} // namespace bagua::rt
