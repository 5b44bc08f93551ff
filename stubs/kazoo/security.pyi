class Id:
    scheme: str
    id: str

class ACL:
    perms: int
    id: Id

CREATOR_ALL_ACL: list[ACL]
OPEN_ACL_UNSAFE: list[ACL]
