/* hub/fetch_pip.h - getting a wheel from PyPI by running pip.
 *
 * pip knows the machine's index, proxies and certificates; we do not have to. It is run as
 * `python3 -m pip download`, else `pip3`, else `pip`, without a shell, only ever for a ready
 * wheel (nothing is built, installed or imported). What it says goes to FOLDER/pip.log.
 */
#ifndef HUB_FETCH_PIP_H
#define HUB_FETCH_PIP_H

#include "base/status.h"

struct progress;

/* Leave the wheel of PACKAGE==VERSION in `folder`, which exists. `progress` has begun and is
 * shown the growth of the folder. ST_MISSING: there is no pip; ST_IO: the disk is full;
 * ST_UNAVAILABLE: pip failed, with its words in `err`. */
enum status fetch_pip(const char *package, const char *version, const char *folder,
                      struct progress *progress, struct err *err);

#endif
